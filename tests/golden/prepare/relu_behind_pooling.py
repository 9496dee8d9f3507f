# prepare: relu_behind_pooling
def f(x):
    return F.max_pool2d(torch.relu(x), 2)


def declined(x):
    seen = torch.relu(x)
    return F.max_pool2d(seen, 2), seen.sin()


inputs = (torch.randn(1, 2, 4, 4),)
# output
def f(args):
    # x: f32[1, 2, 4, 4]
    x, = args
    args.clear()
    max_pool2d_with_indices_1 = aten.max_pool2d_with_indices.default(x, [2, 2])  # (f32[1, 2, 2, 2], i64[1, 2, 2, 2])  relu_behind_pooling.py:3  return F.max_pool2d(torch.relu(x), 2)
    del x
    item = max_pool2d_with_indices_1[0]  # f32[1, 2, 2, 2]  relu_behind_pooling.py:3  return F.max_pool2d(torch.relu(x), 2)
    del max_pool2d_with_indices_1
    max_pool2d = torch.relu(item)  # f32[1, 2, 2, 2]  relu_behind_pooling.py:3  return F.max_pool2d(torch.relu(x), 2)
    del item
    return [max_pool2d]


def declined(args):
    # x: f32[1, 2, 4, 4]
    x, = args
    args.clear()
    seen = torch.relu(x)  # f32[1, 2, 4, 4]  relu_behind_pooling.py:7  seen = torch.relu(x)
    del x
    max_pool2d_with_indices = aten.max_pool2d_with_indices.default(seen, [2, 2])  # (f32[1, 2, 2, 2], i64[1, 2, 2, 2])  relu_behind_pooling.py:8  return F.max_pool2d(seen, 2), seen.sin()
    max_pool2d = max_pool2d_with_indices[0]  # f32[1, 2, 2, 2]  relu_behind_pooling.py:8  return F.max_pool2d(seen, 2), seen.sin()
    del max_pool2d_with_indices
    sin = torch.sin(seen)  # f32[1, 2, 4, 4]  relu_behind_pooling.py:8  return F.max_pool2d(seen, 2), seen.sin()
    del seen
    return [max_pool2d, sin]
