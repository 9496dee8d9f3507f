# prepare: cube
def f(x):
    return x.pow(2) * x


def declined(x):
    return x.pow(3) * x, x.detach().pow(2) * x.detach()


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = torch.pow(x, 3)  # f32[4]  cube.py:3  return x.pow(2) * x
    del x
    return [mul]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    pow_1 = torch.pow(x, 3)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    mul = pow_1.mul_(x)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    del pow_1
    detach = torch.detach(x)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    pow_2 = torch.pow(detach, 2)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    del detach
    detach_1 = torch.detach(x)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    del x
    mul_1 = pow_2.mul_(detach_1)  # f32[4]  cube.py:7  return x.pow(3) * x, x.detach().pow(2) * x.detach()
    del pow_2, detach_1
    return [mul, mul_1]
