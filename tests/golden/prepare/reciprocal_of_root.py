# prepare: reciprocal_of_root
def f(x):
    return x.sqrt().reciprocal().cos()


def declined(x):
    y = x.sqrt()
    return y.cos(), y.reciprocal().sqrt()  # y stays


inputs = (torch.rand(3, 3) + 0.5,)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    reciprocal = torch.rsqrt(x)  # f32[3, 3]  reciprocal_of_root.py:3  return x.sqrt().reciprocal().cos()
    del x
    cos = torch.cos(reciprocal)  # f32[3, 3]  reciprocal_of_root.py:3  return x.sqrt().reciprocal().cos()
    del reciprocal
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    y = torch.sqrt(x)  # f32[3, 3]  reciprocal_of_root.py:7  y = x.sqrt()
    del x
    cos = torch.cos(y)  # f32[3, 3]  reciprocal_of_root.py:8  return y.cos(), y.reciprocal().sqrt()  # y stays
    reciprocal = torch.reciprocal(y)  # f32[3, 3]  reciprocal_of_root.py:8  return y.cos(), y.reciprocal().sqrt()  # y stays
    del y
    sqrt_1 = torch.sqrt(reciprocal)  # f32[3, 3]  reciprocal_of_root.py:8  return y.cos(), y.reciprocal().sqrt()  # y stays
    del reciprocal
    return [cos, sqrt_1]
