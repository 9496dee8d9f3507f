# prepare: merge_splits
def f(x):
    a, b, c = x.split([2, 4, 1], dim=1)
    d, e = b.split([1, 3], dim=-1)
    return a.sin(), d.cos(), e.tan(), c.exp()


def declined(x):
    a, b = x.split([3, 4], dim=1)
    c, d = b.split(1, dim=0)
    return a.sin(), c.cos(), d.tan()  # along another dimension


inputs = (torch.randn(2, 7),)
# output
def f(args):
    # x: f32[2, 7]
    x, = args
    args.clear()
    split_with_sizes_2 = torch.split_with_sizes(x, [2, 1, 3, 1], 1)  # (f32[2, 2], f32[2, 1], f32[2, 3], f32[2, 1])  merge_splits.py:3  a, b, c = x.split([2, 4, 1], dim=1)
    del x
    getitem = split_with_sizes_2[0]  # f32[2, 2]  merge_splits.py:3  a, b, c = x.split([2, 4, 1], dim=1)
    getitem_3 = split_with_sizes_2[1]  # f32[2, 1]  merge_splits.py:3  a, b, c = x.split([2, 4, 1], dim=1)
    split_1 = split_with_sizes_2[2]  # f32[2, 3]  merge_splits.py:3  a, b, c = x.split([2, 4, 1], dim=1)
    split = split_with_sizes_2[3]  # f32[2, 1]  merge_splits.py:3  a, b, c = x.split([2, 4, 1], dim=1)
    del split_with_sizes_2
    sin = torch.sin(getitem)  # f32[2, 2]  merge_splits.py:5  return a.sin(), d.cos(), e.tan(), c.exp()
    del getitem
    cos = torch.cos(getitem_3)  # f32[2, 1]  merge_splits.py:5  return a.sin(), d.cos(), e.tan(), c.exp()
    del getitem_3
    tan = torch.tan(split_1)  # f32[2, 3]  merge_splits.py:5  return a.sin(), d.cos(), e.tan(), c.exp()
    del split_1
    exp = torch.exp(split)  # f32[2, 1]  merge_splits.py:5  return a.sin(), d.cos(), e.tan(), c.exp()
    del split
    return [sin, cos, tan, exp]


def declined(args):
    # x: f32[2, 7]
    x, = args
    args.clear()
    split_with_sizes = torch.split_with_sizes(x, [3, 4], 1)  # (f32[2, 3], f32[2, 4])  merge_splits.py:9  a, b = x.split([3, 4], dim=1)
    del x
    getitem = split_with_sizes[0]  # f32[2, 3]  merge_splits.py:9  a, b = x.split([3, 4], dim=1)
    split_1 = split_with_sizes[1]  # f32[2, 4]  merge_splits.py:9  a, b = x.split([3, 4], dim=1)
    del split_with_sizes
    split = aten.split.Tensor(split_1, 1)  # (f32[1, 4], f32[1, 4])  merge_splits.py:10  c, d = b.split(1, dim=0)
    del split_1
    getitem_2 = split[0]  # f32[1, 4]  merge_splits.py:10  c, d = b.split(1, dim=0)
    split_2 = split[1]  # f32[1, 4]  merge_splits.py:10  c, d = b.split(1, dim=0)
    del split
    sin = torch.sin(getitem)  # f32[2, 3]  merge_splits.py:11  return a.sin(), c.cos(), d.tan()  # along another dimension
    del getitem
    cos = torch.cos(getitem_2)  # f32[1, 4]  merge_splits.py:11  return a.sin(), c.cos(), d.tan()  # along another dimension
    del getitem_2
    tan = torch.tan(split_2)  # f32[1, 4]  merge_splits.py:11  return a.sin(), c.cos(), d.tan()  # along another dimension
    del split_2
    return [sin, cos, tan]
