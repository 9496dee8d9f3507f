# prepare: drop_single_cat
def f(x):
    return torch.cat([x.sin()], 1).cos()


def declined(x):
    return torch.cat([x.sin()], 1)  # the result is returned: a value of its own


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_single_cat.py:3  return torch.cat([x.sin()], 1).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_single_cat.py:3  return torch.cat([x.sin()], 1).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_single_cat.py:7  return torch.cat([x.sin()], 1)  # the result is returned: a…
    del x
    cat = torch.cat([sin], 1)  # f32[3, 3]  drop_single_cat.py:7  return torch.cat([x.sin()], 1)  # the result is returned: a…
    del sin
    return [cat]
