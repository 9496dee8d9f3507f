# prepare: merge_slices
def f(x):
    return x[1:6][2:4].cos()


def declined(x):
    return x[1:6][:, 1:].cos()  # another dimension


inputs = (torch.randn(7, 3),)
# output
def f(args):
    # x: f32[7, 3]
    x, = args
    args.clear()
    getitem_1 = aten.slice.Tensor(x, 0, 3, 5)  # f32[2, 3]  merge_slices.py:3  return x[1:6][2:4].cos()
    del x
    cos = torch.cos(getitem_1)  # f32[2, 3]  merge_slices.py:3  return x[1:6][2:4].cos()
    del getitem_1
    return [cos]


def declined(args):
    # x: f32[7, 3]
    x, = args
    args.clear()
    getitem = aten.slice.Tensor(x, 0, 1, 6)  # f32[5, 3]  merge_slices.py:7  return x[1:6][:, 1:].cos()  # another dimension
    del x
    getitem_1 = aten.slice.Tensor(getitem, 1, 1, 9223372036854775807)  # f32[5, 2]  merge_slices.py:7  return x[1:6][:, 1:].cos()  # another dimension
    del getitem
    cos = torch.cos(getitem_1)  # f32[5, 2]  merge_slices.py:7  return x[1:6][:, 1:].cos()  # another dimension
    del getitem_1
    return [cos]
