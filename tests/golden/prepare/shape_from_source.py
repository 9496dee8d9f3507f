# prepare: shape_from_source
def f(x):
    return x * 2, torch.zeros_like(x.sin())


def declined(x):
    y = x.sin()
    return y * 2, torch.zeros_like(y)  # y is needed anyway


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    mul = torch.mul(x, 2)  # f32[3, 3]  shape_from_source.py:3  return x * 2, torch.zeros_like(x.sin())
    zeros_like = torch.zeros_like(x, pin_memory=False)  # f32[3, 3]  shape_from_source.py:3  return x * 2, torch.zeros_like(x.sin())
    del x
    return [mul, zeros_like]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    y = torch.sin(x)  # f32[3, 3]  shape_from_source.py:7  y = x.sin()
    del x
    mul = torch.mul(y, 2)  # f32[3, 3]  shape_from_source.py:8  return y * 2, torch.zeros_like(y)  # y is needed anyway
    zeros_like = torch.zeros_like(y, pin_memory=False)  # f32[3, 3]  shape_from_source.py:8  return y * 2, torch.zeros_like(y)  # y is needed anyway
    del y
    return [mul, zeros_like]
