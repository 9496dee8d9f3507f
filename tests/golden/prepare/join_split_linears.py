# prepare: join_split_linears!
def f(x, v, w):
    a, b = x.split(2, dim=1)
    return F.linear(a, v) + F.linear(b, w)


def declined(x, v, w):
    a, b = x.split(2, dim=1)
    return F.linear(a, v) + F.linear(a, w)  # the same part twice


inputs = (torch.randn(3, 4), torch.randn(5, 2), torch.randn(5, 2))
# output
def f(args):
    # x: f32[3, 4]
    # v: f32[5, 2]
    # w: f32[5, 2]
    x, v, w = args
    args.clear()
    t = torch.t(v)  # f32[2, 5]  join_split_linears.py:4  return F.linear(a, v) + F.linear(b, w)
    del v
    t_1 = torch.t(w)  # f32[2, 5]  join_split_linears.py:4  return F.linear(a, v) + F.linear(b, w)
    del w
    cat = torch.cat([t, t_1])  # f32[4, 5]  join_split_linears.py:4  return F.linear(a, v) + F.linear(b, w)
    del t, t_1
    add = torch.mm(x, cat)  # f32[3, 5]  join_split_linears.py:4  return F.linear(a, v) + F.linear(b, w)
    del x, cat
    return [add]


def declined(args):
    # x: f32[3, 4]
    # v: f32[5, 2]
    # w: f32[5, 2]
    x, v, w = args
    args.clear()
    split = aten.split.Tensor(x, 2, 1)  # (f32[3, 2], f32[3, 2])  join_split_linears.py:8  a, b = x.split(2, dim=1)
    del x
    split_1 = split[0]  # f32[3, 2]  join_split_linears.py:8  a, b = x.split(2, dim=1)
    del split
    t = torch.t(v)  # f32[2, 5]  join_split_linears.py:9  return F.linear(a, v) + F.linear(a, w)  # the same part twi…
    del v
    linear = torch.mm(split_1, t)  # f32[3, 5]  join_split_linears.py:9  return F.linear(a, v) + F.linear(a, w)  # the same part twi…
    del t
    t_1 = torch.t(w)  # f32[2, 5]  join_split_linears.py:9  return F.linear(a, v) + F.linear(a, w)  # the same part twi…
    del w
    linear_1 = torch.mm(split_1, t_1)  # f32[3, 5]  join_split_linears.py:9  return F.linear(a, v) + F.linear(a, w)  # the same part twi…
    del split_1, t_1
    add = linear.add_(linear_1)  # f32[3, 5]  join_split_linears.py:9  return F.linear(a, v) + F.linear(a, w)  # the same part twi…
    del linear, linear_1
    return [add]
