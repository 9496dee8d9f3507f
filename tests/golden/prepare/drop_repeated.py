# prepare: drop_repeated
def f(x):
    return torch.nan_to_num(torch.nan_to_num(x, 1.0), 1.0).cos()


def declined(x):
    return torch.nan_to_num(torch.nan_to_num(x, 1.0, 2.0), 1.0).cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    nan_to_num = torch.nan_to_num(x, 1.0)  # f32[3, 3]  drop_repeated.py:3  return torch.nan_to_num(torch.nan_to_num(x, 1.0), 1.0).cos()
    del x
    cos = torch.cos(nan_to_num)  # f32[3, 3]  drop_repeated.py:3  return torch.nan_to_num(torch.nan_to_num(x, 1.0), 1.0).cos()
    del nan_to_num
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    nan_to_num = torch.nan_to_num(x, 1.0, 2.0)  # f32[3, 3]  drop_repeated.py:7  return torch.nan_to_num(torch.nan_to_num(x, 1.0, 2.0), 1.0)…
    del x
    nan_to_num_1 = torch.nan_to_num(nan_to_num, 1.0)  # f32[3, 3]  drop_repeated.py:7  return torch.nan_to_num(torch.nan_to_num(x, 1.0, 2.0), 1.0)…
    del nan_to_num
    cos = torch.cos(nan_to_num_1)  # f32[3, 3]  drop_repeated.py:7  return torch.nan_to_num(torch.nan_to_num(x, 1.0, 2.0), 1.0)…
    del nan_to_num_1
    return [cos]
