def f(x, y):
    return torch.maximum(x, y)


inputs = (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))
# output
def backward(args):
    # g_maximum: f32[3]
    # x: f32[3]
    # y: f32[3]
    g_maximum, x, y = args
    args.clear()
    eq = aten.eq.Tensor(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    div = aten.div.Tensor(g_maximum, 2)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    where = aten.where.self(eq, div, g_maximum)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del eq, div
    lt = aten.lt.Tensor(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    masked_fill = aten.masked_fill.Scalar(where, lt, 0)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del where, lt
    eq_1 = aten.eq.Tensor(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    div_1 = aten.div.Tensor(g_maximum, 2)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    where_1 = aten.where.self(eq_1, div_1, g_maximum)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del eq_1, div_1, g_maximum
    gt = aten.gt.Tensor(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del x, y
    masked_fill_1 = aten.masked_fill.Scalar(where_1, gt, 0)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del where_1, gt
    return [masked_fill, masked_fill_1]
