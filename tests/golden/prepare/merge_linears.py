# prepare: merge_linears
def f(x, v, b, w, c):
    return F.linear(F.linear(x, v, b), w, c)


def declined(x, v, b, w, c):
    return F.linear(F.relu(F.linear(x, v, b)), w, c)


inputs = (torch.randn(512, 2), torch.randn(64, 2), torch.randn(64), torch.randn(2, 64), torch.randn(2))
# output
def f(args):
    # x: f32[512, 2]
    # v: f32[64, 2]
    # b: f32[64]
    # w: f32[2, 64]
    # c: f32[2]
    x, v, b, w, c = args
    args.clear()
    t = torch.t(v)  # f32[2, 64]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del v
    t_1 = torch.t(w)  # f32[64, 2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del w
    unsqueeze = torch.unsqueeze(c, 0)  # f32[1, 2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del c
    unsqueeze_1 = torch.unsqueeze(b, 0)  # f32[1, 64]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del b
    addmm_2 = torch.addmm(unsqueeze, unsqueeze_1, t_1)  # f32[1, 2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del unsqueeze, unsqueeze_1
    squeeze = torch.squeeze(addmm_2, 0)  # f32[2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del addmm_2
    mm = torch.mm(t, t_1)  # f32[2, 2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del t, t_1
    linear_1 = torch.addmm(squeeze, x, mm)  # f32[512, 2]  merge_linears.py:3  return F.linear(F.linear(x, v, b), w, c)
    del squeeze, x, mm
    return [linear_1]


def declined(args):
    # x: f32[512, 2]
    # v: f32[64, 2]
    # b: f32[64]
    # w: f32[2, 64]
    # c: f32[2]
    x, v, b, w, c = args
    args.clear()
    t = torch.t(v)  # f32[2, 64]  merge_linears.py:7  return F.linear(F.relu(F.linear(x, v, b)), w, c)
    del v
    linear = torch.addmm(b, x, t)  # f32[512, 64]  merge_linears.py:7  return F.linear(F.relu(F.linear(x, v, b)), w, c)
    del b, x, t
    relu = linear.relu_()  # f32[512, 64]  merge_linears.py:7  return F.linear(F.relu(F.linear(x, v, b)), w, c)
    del linear
    t_1 = torch.t(w)  # f32[64, 2]  merge_linears.py:7  return F.linear(F.relu(F.linear(x, v, b)), w, c)
    del w
    linear_1 = torch.addmm(c, relu, t_1)  # f32[512, 2]  merge_linears.py:7  return F.linear(F.relu(F.linear(x, v, b)), w, c)
    del c, relu, t_1
    return [linear_1]
