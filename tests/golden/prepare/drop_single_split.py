# prepare: drop_single_split
def f(x):
    return x.sin().split(3, dim=0)[0].cos()


def declined(x):
    return x.sin().split(2, dim=0)[0].cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_single_split.py:3  return x.sin().split(3, dim=0)[0].cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_single_split.py:3  return x.sin().split(3, dim=0)[0].cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_single_split.py:7  return x.sin().split(2, dim=0)[0].cos()
    del x
    split = aten.split.Tensor(sin, 2)  # (f32[2, 3], f32[1, 3])  drop_single_split.py:7  return x.sin().split(2, dim=0)[0].cos()
    del sin
    split_1 = split[0]  # f32[2, 3]  drop_single_split.py:7  return x.sin().split(2, dim=0)[0].cos()
    del split
    cos = torch.cos(split_1)  # f32[2, 3]  drop_single_split.py:7  return x.sin().split(2, dim=0)[0].cos()
    del split_1
    return [cos]
