def f(x):
    return x.amax(dim=1)


inputs = (torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]),)
# output
def backward(args):
    # g_amax: f32[2]
    # x: f32[2, 3]
    # amax: f32[2]
    g_amax, x, amax = args
    args.clear()
    unsqueeze = torch.unsqueeze(g_amax, 1)  # f32[2, 1]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    del g_amax
    unsqueeze_1 = torch.unsqueeze(amax, 1)  # f32[2, 1]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    del amax
    eq = torch.eq(x, unsqueeze_1)  # bool[2, 3]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    del x, unsqueeze_1
    sum_1 = torch.sum(eq, [1], True)  # i64[2, 1]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    div = torch.div(unsqueeze, sum_1)  # f32[2, 1]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    del unsqueeze, sum_1
    scalar_tensor = aten.scalar_tensor.default(0, dtype=torch.float32, layout=torch.strided, device=device('cpu'))  # f32[]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    where = torch.where(eq, div, scalar_tensor)  # f32[2, 3]  grad_of amax  amax_shares_among_ties.py:2  return x.amax(dim=1)
    del eq, div, scalar_tensor
    return [where]
