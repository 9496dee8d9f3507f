# prepare: join_reshaped_chunks
def f(x):
    return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)], dim=2).cos()


def declined(x):
    return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, 7], 1)], dim=1).cos()  # of unequal size


inputs = (torch.randn(2, 12),)
# output
def f(args):
    # x: f32[2, 12]
    x, = args
    args.clear()
    view_6 = x.reshape([2, 6, 2])  # f32[2, 6, 2]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del x
    permute = torch.permute(view_6, [1, 0, 2])  # f32[6, 2, 2]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del view_6
    view_7 = permute.reshape([6, 2, 1, 2])  # f32[6, 2, 1, 2]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del permute
    permute_1 = torch.permute(view_7, [1, 2, 0, 3])  # f32[2, 1, 6, 2]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del view_7
    cat = permute_1.reshape([2, 1, 12])  # f32[2, 1, 12]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del permute_1
    cos = torch.cos(cat)  # f32[2, 1, 12]  join_reshaped_chunks.py:3  return torch.cat([y.reshape(2, 1, 2) for y in x.chunk(6, 1)…
    del cat
    return [cos]


def declined(args):
    # x: f32[2, 12]
    x, = args
    args.clear()
    split_with_sizes = torch.split_with_sizes(x, [5, 7], 1)  # (f32[2, 5], f32[2, 7])  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del x
    getitem = split_with_sizes[0]  # f32[2, 5]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    split = split_with_sizes[1]  # f32[2, 7]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del split_with_sizes
    reshape = getitem.reshape([2, 5, 1])  # f32[2, 5, 1]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del getitem
    reshape_1 = split.reshape([2, 7, 1])  # f32[2, 7, 1]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del split
    cat = torch.cat([reshape, reshape_1], 1)  # f32[2, 12, 1]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del reshape, reshape_1
    cos = torch.cos(cat)  # f32[2, 12, 1]  join_reshaped_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del cat
    return [cos]
