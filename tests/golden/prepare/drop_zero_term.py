# prepare: drop_zero_term
def f(x):
    return x * (torch.arange(3) + 0)


def declined(x):
    return (x.sin() + 0).cos()  # −0.0 + 0 = +0.0


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    arange = torch.arange(3, device=device('cpu'), pin_memory=False)  # i64[3]  drop_zero_term.py:3  return x * (torch.arange(3) + 0)
    mul = torch.mul(x, arange)  # f32[3, 3]  drop_zero_term.py:3  return x * (torch.arange(3) + 0)
    del x, arange
    return [mul]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_zero_term.py:7  return (x.sin() + 0).cos()  # −0.0 + 0 = +0.0
    del x
    add = sin.add_(0)  # f32[3, 3]  drop_zero_term.py:7  return (x.sin() + 0).cos()  # −0.0 + 0 = +0.0
    del sin
    cos = torch.cos(add)  # f32[3, 3]  drop_zero_term.py:7  return (x.sin() + 0).cos()  # −0.0 + 0 = +0.0
    del add
    return [cos]
