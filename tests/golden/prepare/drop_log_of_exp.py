# prepare: drop_log_of_exp
def f(x):
    return x.exp().log().cos()


def declined(x):
    return x.exp().log1p().cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    cos = torch.cos(x)  # f32[3, 3]  drop_log_of_exp.py:3  return x.exp().log().cos()
    del x
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    exp = torch.exp(x)  # f32[3, 3]  drop_log_of_exp.py:7  return x.exp().log1p().cos()
    del x
    log1p = torch.log1p(exp)  # f32[3, 3]  drop_log_of_exp.py:7  return x.exp().log1p().cos()
    del exp
    cos = torch.cos(log1p)  # f32[3, 3]  drop_log_of_exp.py:7  return x.exp().log1p().cos()
    del log1p
    return [cos]
