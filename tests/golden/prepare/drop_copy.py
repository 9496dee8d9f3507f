# prepare: drop_copy
def f(x):
    return F.dropout(x.sin(), 0.5, training=False).cos()


def declined(x):
    return x.clone().cos(), x.sin().clone()  # the caller may change x, and what it gets


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_copy.py:3  return F.dropout(x.sin(), 0.5, training=False).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_copy.py:3  return F.dropout(x.sin(), 0.5, training=False).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    clone = torch.clone(x)  # f32[3, 3]  drop_copy.py:7  return x.clone().cos(), x.sin().clone()  # the caller may c…
    cos = torch.cos(clone)  # f32[3, 3]  drop_copy.py:7  return x.clone().cos(), x.sin().clone()  # the caller may c…
    del clone
    sin = torch.sin(x)  # f32[3, 3]  drop_copy.py:7  return x.clone().cos(), x.sin().clone()  # the caller may c…
    del x
    clone_1 = torch.clone(sin)  # f32[3, 3]  drop_copy.py:7  return x.clone().cos(), x.sin().clone()  # the caller may c…
    del sin
    return [cos, clone_1]
