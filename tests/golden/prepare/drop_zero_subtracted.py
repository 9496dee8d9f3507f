# prepare: drop_zero_subtracted
def f(x):
    return (x.sin() - 0).cos()


def declined(x):
    return (x.sin() - (-0.0)).cos()  # −0.0 + 0.0 = +0.0


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_zero_subtracted.py:3  return (x.sin() - 0).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_zero_subtracted.py:3  return (x.sin() - 0).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_zero_subtracted.py:7  return (x.sin() - (-0.0)).cos()  # −0.0 + 0.0 = +0.0
    del x
    sub = sin.sub_(-0.0)  # f32[3, 3]  drop_zero_subtracted.py:7  return (x.sin() - (-0.0)).cos()  # −0.0 + 0.0 = +0.0
    del sin
    cos = torch.cos(sub)  # f32[3, 3]  drop_zero_subtracted.py:7  return (x.sin() - (-0.0)).cos()  # −0.0 + 0.0 = +0.0
    del sub
    return [cos]
