# prepare: batch_linears!
def f(x, y, w, b):
    return F.linear(x, w, b) * F.linear(y, w, b)


def declined(x, y, w, b):
    return F.linear(F.linear(x, w, b), w, b)  # one depends on the other


inputs = (torch.randn(3, 4), torch.randn(3, 4), torch.randn(4, 4), torch.randn(4))
# output
def f(args):
    # x: f32[3, 4]
    # w: f32[4, 4]
    # b: f32[4]
    # y: f32[3, 4]
    x, w, b, y = args
    args.clear()
    t = torch.t(w)  # f32[4, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    t_1 = torch.t(w)  # f32[4, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del w
    stack = torch.stack([x, y])  # f32[2, 3, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del x, y
    stack_1 = torch.stack([t, t_1])  # f32[2, 4, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del t, t_1
    stack_2 = torch.stack([b, b])  # f32[2, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del b
    unsqueeze = torch.unsqueeze(stack_2, 1)  # f32[2, 1, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del stack_2
    baddbmm = torch.baddbmm(unsqueeze, stack, stack_1)  # f32[2, 3, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del unsqueeze, stack, stack_1
    unbind = torch.unbind(baddbmm)  # (f32[3, 4], f32[3, 4])  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del baddbmm
    linear = unbind[0]  # f32[3, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    linear_1 = unbind[1]  # f32[3, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del unbind
    mul = torch.mul(linear, linear_1)  # f32[3, 4]  batch_linears.py:3  return F.linear(x, w, b) * F.linear(y, w, b)
    del linear, linear_1
    return [mul]


def declined(args):
    # x: f32[3, 4]
    # w: f32[4, 4]
    # b: f32[4]
    x, w, b = args
    args.clear()
    t = torch.t(w)  # f32[4, 4]  batch_linears.py:7  return F.linear(F.linear(x, w, b), w, b)  # one depends on …
    linear = torch.addmm(b, x, t)  # f32[3, 4]  batch_linears.py:7  return F.linear(F.linear(x, w, b), w, b)  # one depends on …
    del x, t
    t_1 = torch.t(w)  # f32[4, 4]  batch_linears.py:7  return F.linear(F.linear(x, w, b), w, b)  # one depends on …
    del w
    linear_1 = torch.addmm(b, linear, t_1)  # f32[3, 4]  batch_linears.py:7  return F.linear(F.linear(x, w, b), w, b)  # one depends on …
    del b, linear, t_1
    return [linear_1]
