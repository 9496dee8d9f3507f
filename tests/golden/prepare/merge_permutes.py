# prepare: merge_permutes
def f(x):
    return x.transpose(0, 1).permute(2, 0, 1).cos()


def declined(x):
    y = x.transpose(0, 1)
    return y.cos(), y.permute(2, 0, 1).cos()  # y stays: nothing is saved


inputs = (torch.randn(2, 3, 4),)
# output
def f(args):
    # x: f32[2, 3, 4]
    x, = args
    args.clear()
    permute = torch.permute(x, [2, 1, 0])  # f32[4, 3, 2]  merge_permutes.py:3  return x.transpose(0, 1).permute(2, 0, 1).cos()
    del x
    cos = torch.cos(permute)  # f32[4, 3, 2]  merge_permutes.py:3  return x.transpose(0, 1).permute(2, 0, 1).cos()
    del permute
    return [cos]


def declined(args):
    # x: f32[2, 3, 4]
    x, = args
    args.clear()
    y = torch.transpose(x, 0, 1)  # f32[3, 2, 4]  merge_permutes.py:7  y = x.transpose(0, 1)
    del x
    cos = torch.cos(y)  # f32[3, 2, 4]  merge_permutes.py:8  return y.cos(), y.permute(2, 0, 1).cos()  # y stays: nothin…
    permute = torch.permute(y, [2, 0, 1])  # f32[4, 3, 2]  merge_permutes.py:8  return y.cos(), y.permute(2, 0, 1).cos()  # y stays: nothin…
    del y
    cos_1 = torch.cos(permute)  # f32[4, 3, 2]  merge_permutes.py:8  return y.cos(), y.permute(2, 0, 1).cos()  # y stays: nothin…
    del permute
    return [cos, cos_1]
