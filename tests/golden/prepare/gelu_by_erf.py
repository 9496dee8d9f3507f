# prepare: gelu_by_erf
def f(x):
    return x * 0.5 * (1 + torch.erf(x / 1.4142135623730951))


def declined(x):
    normal = torch.erf(x / 1.4142135623730951)
    return x * 0.5 * (1 + normal), normal.sin()


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul_1 = aten.gelu.default(x)  # f32[4]  gelu_by_erf.py:3  return x * 0.5 * (1 + torch.erf(x / 1.4142135623730951))
    del x
    return [mul_1]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    truediv = torch.div(x, 1.4142135623730951)  # f32[4]  gelu_by_erf.py:7  normal = torch.erf(x / 1.4142135623730951)
    normal = torch.erf(truediv)  # f32[4]  gelu_by_erf.py:7  normal = torch.erf(x / 1.4142135623730951)
    del truediv
    mul = torch.mul(x, 0.5)  # f32[4]  gelu_by_erf.py:8  return x * 0.5 * (1 + normal), normal.sin()
    del x
    add = torch.add(normal, 1)  # f32[4]  gelu_by_erf.py:8  return x * 0.5 * (1 + normal), normal.sin()
    mul_1 = mul.mul_(add)  # f32[4]  gelu_by_erf.py:8  return x * 0.5 * (1 + normal), normal.sin()
    del mul, add
    sin = torch.sin(normal)  # f32[4]  gelu_by_erf.py:8  return x * 0.5 * (1 + normal), normal.sin()
    del normal
    return [mul_1, sin]
