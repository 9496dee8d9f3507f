# prepare: join_chunks!
def f(x):
    return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)], dim=2).cos()


def declined(x):
    return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, 7], 1)], dim=1).cos()  # of unequal size


inputs = (torch.randn(2, 12),)
# output
def f(args):
    # x: f32[2, 12]
    x, = args
    args.clear()
    view_2 = x.reshape([2, 2, 6])  # f32[2, 2, 6]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del x
    permute = torch.permute(view_2, [1, 0, 2])  # f32[2, 2, 6]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del view_2
    view_3 = permute.reshape([2, 2, 2, 3])  # f32[2, 2, 2, 3]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del permute
    permute_1 = torch.permute(view_3, [1, 2, 0, 3])  # f32[2, 2, 2, 3]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del view_3
    clone = torch.clone(permute_1, memory_format=torch.contiguous_format)  # f32[2, 2, 2, 3]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del permute_1
    cat = clone.reshape([2, 2, 6])  # f32[2, 2, 6]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del clone
    cos = torch.cos(cat)  # f32[2, 2, 6]  join_chunks.py:3  return torch.cat([y.reshape(2, 2, 3) for y in x.chunk(2, 1)…
    del cat
    return [cos]


def declined(args):
    # x: f32[2, 12]
    x, = args
    args.clear()
    split_with_sizes = torch.split_with_sizes(x, [5, 7], 1)  # (f32[2, 5], f32[2, 7])  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del x
    getitem = split_with_sizes[0]  # f32[2, 5]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    split = split_with_sizes[1]  # f32[2, 7]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del split_with_sizes
    reshape = getitem.reshape([2, 5, 1])  # f32[2, 5, 1]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del getitem
    reshape_1 = split.reshape([2, 7, 1])  # f32[2, 7, 1]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del split
    cat = torch.cat([reshape, reshape_1], 1)  # f32[2, 12, 1]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del reshape, reshape_1
    cos = torch.cos(cat)  # f32[2, 12, 1]  join_chunks.py:7  return torch.cat([y.reshape(2, -1, 1) for y in x.split([5, …
    del cat
    return [cos]
