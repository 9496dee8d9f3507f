# prepare: join_pieces
def f(x):
    a, b = x.sin().unbind(2)
    return torch.stack([a, b], 0).cos()


def declined(x):
    a, b = x.sin().unbind(2)
    return torch.stack([b, a], 0).cos()  # in another order


inputs = (torch.randn(3, 4, 2),)
# output
def f(args):
    # x: f32[3, 4, 2]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 4, 2]  join_pieces.py:3  a, b = x.sin().unbind(2)
    del x
    permute = torch.permute(sin, [2, 0, 1])  # f32[2, 3, 4]  join_pieces.py:4  return torch.stack([a, b], 0).cos()
    del sin
    stack = torch.clone(permute, memory_format=torch.contiguous_format)  # f32[2, 3, 4]  join_pieces.py:4  return torch.stack([a, b], 0).cos()
    del permute
    cos = torch.cos(stack)  # f32[2, 3, 4]  join_pieces.py:4  return torch.stack([a, b], 0).cos()
    del stack
    return [cos]


def declined(args):
    # x: f32[3, 4, 2]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 4, 2]  join_pieces.py:8  a, b = x.sin().unbind(2)
    del x
    unbind = torch.unbind(sin, 2)  # (f32[3, 4], f32[3, 4])  join_pieces.py:8  a, b = x.sin().unbind(2)
    del sin
    getitem = unbind[0]  # f32[3, 4]  join_pieces.py:8  a, b = x.sin().unbind(2)
    unbind_1 = unbind[1]  # f32[3, 4]  join_pieces.py:8  a, b = x.sin().unbind(2)
    del unbind
    stack = torch.stack([unbind_1, getitem])  # f32[2, 3, 4]  join_pieces.py:9  return torch.stack([b, a], 0).cos()  # in another order
    del unbind_1, getitem
    cos = torch.cos(stack)  # f32[2, 3, 4]  join_pieces.py:9  return torch.stack([b, a], 0).cos()  # in another order
    del stack
    return [cos]
