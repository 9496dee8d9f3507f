# prepare: square
def f(x):
    return (x * x).sum()


def declined(x):
    return x.detach() * x.detach(), x * x.sin()


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = torch.pow(x, 2)  # f32[4]  square.py:3  return (x * x).sum()
    del x
    sum_1 = torch.sum(mul)  # f32[]  square.py:3  return (x * x).sum()
    del mul
    return [sum_1]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    detach = torch.detach(x)  # f32[4]  square.py:7  return x.detach() * x.detach(), x * x.sin()
    detach_1 = torch.detach(x)  # f32[4]  square.py:7  return x.detach() * x.detach(), x * x.sin()
    mul = torch.mul(detach, detach_1)  # f32[4]  square.py:7  return x.detach() * x.detach(), x * x.sin()
    del detach, detach_1
    sin = torch.sin(x)  # f32[4]  square.py:7  return x.detach() * x.detach(), x * x.sin()
    mul_1 = sin.mul_(x)  # f32[4]  square.py:7  return x.detach() * x.detach(), x * x.sin()
    del x, sin
    return [mul, mul_1]
