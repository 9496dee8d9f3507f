# prepare: drop_inverse
def f(x):
    return (-(-x.sin())).cos()


def declined(x):
    return x * torch.logical_not(torch.logical_not(x.int()))  # of an integer: a truth value


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_inverse.py:3  return (-(-x.sin())).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_inverse.py:3  return (-(-x.sin())).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    int_1 = aten._to_copy.default(x, dtype=torch.int32)  # i32[3, 3]  drop_inverse.py:7  return x * torch.logical_not(torch.logical_not(x.int()))  #…
    logical_not = torch.logical_not(int_1)  # bool[3, 3]  drop_inverse.py:7  return x * torch.logical_not(torch.logical_not(x.int()))  #…
    del int_1
    logical_not_1 = torch.logical_not(logical_not)  # bool[3, 3]  drop_inverse.py:7  return x * torch.logical_not(torch.logical_not(x.int()))  #…
    del logical_not
    mul = torch.mul(x, logical_not_1)  # f32[3, 3]  drop_inverse.py:7  return x * torch.logical_not(torch.logical_not(x.int()))  #…
    del x, logical_not_1
    return [mul]
