# prepare: drop_unsigned_zero_term
def f(x):
    return (x.sin() + 0).cos()


def declined(x):
    return (x.sin() + 1e-30).cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_unsigned_zero_term.py:3  return (x.sin() + 0).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_unsigned_zero_term.py:3  return (x.sin() + 0).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_unsigned_zero_term.py:7  return (x.sin() + 1e-30).cos()
    del x
    add = sin.add_(1e-30)  # f32[3, 3]  drop_unsigned_zero_term.py:7  return (x.sin() + 1e-30).cos()
    del sin
    cos = torch.cos(add)  # f32[3, 3]  drop_unsigned_zero_term.py:7  return (x.sin() + 1e-30).cos()
    del add
    return [cos]
