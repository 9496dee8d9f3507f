# prepare: merge_expands
def f(x):
    return x.expand(2, 3, 3).expand(4, 2, 3, 3).cos()


def declined(x):
    y = x.expand(2, 3, 3)
    return y.cos(), y.expand(4, 2, 3, 3).cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    expand_1 = x.expand([4, 2, 3, 3])  # f32[4, 2, 3, 3]  merge_expands.py:3  return x.expand(2, 3, 3).expand(4, 2, 3, 3).cos()
    del x
    cos = torch.cos(expand_1)  # f32[4, 2, 3, 3]  merge_expands.py:3  return x.expand(2, 3, 3).expand(4, 2, 3, 3).cos()
    del expand_1
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    y = x.expand([2, 3, 3])  # f32[2, 3, 3]  merge_expands.py:7  y = x.expand(2, 3, 3)
    del x
    cos = torch.cos(y)  # f32[2, 3, 3]  merge_expands.py:8  return y.cos(), y.expand(4, 2, 3, 3).cos()
    expand_1 = y.expand([4, 2, 3, 3])  # f32[4, 2, 3, 3]  merge_expands.py:8  return y.cos(), y.expand(4, 2, 3, 3).cos()
    del y
    cos_1 = torch.cos(expand_1)  # f32[4, 2, 3, 3]  merge_expands.py:8  return y.cos(), y.expand(4, 2, 3, 3).cos()
    del expand_1
    return [cos, cos_1]
