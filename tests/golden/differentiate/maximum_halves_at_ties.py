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
    eq = torch.eq(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    div = torch.div(g_maximum, 2)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    where = torch.where(eq, div, g_maximum)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del eq, div
    lt = torch.lt(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    masked_fill = where.masked_fill_(lt, 0)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del where, lt
    eq_1 = torch.eq(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    div_1 = torch.div(g_maximum, 2)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    where_1 = torch.where(eq_1, div_1, g_maximum)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del eq_1, div_1, g_maximum
    gt = torch.gt(x, y)  # bool[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del x, y
    masked_fill_1 = where_1.masked_fill_(gt, 0)  # f32[3]  grad_of maximum  maximum_halves_at_ties.py:2  return torch.maximum(x, y)
    del where_1, gt
    return [masked_fill, masked_fill_1]
