# undefined: 1
def f(x):
    a, b = x.split(2)
    return a.sin(), b.cos()


inputs = (torch.randn(4),)
# output
def backward(args):
    # 1 of 3 regions removed
    #   grad_of cos (aten.cos.default) gone: no gradient arrives at cos
    # g_sin: f32[2]
    # g_cos: f32[2]
    # x: f32[4]
    g_sin, g_cos, x = args
    args.clear()
    split = aten.split.Tensor(x, 2)  # (f32[2], f32[2])  split_with_a_missing_cotangent.py:3  a, b = x.split(2)
    del x
    getitem = split[0]  # f32[2]  split_with_a_missing_cotangent.py:3  a, b = x.split(2)
    del split
    cos_1 = torch.cos(getitem)  # f32[2]  grad_of sin  split_with_a_missing_cotangent.py:4  return a.sin(), b.cos()
    del getitem
    mul_1 = cos_1.mul_(g_sin)  # f32[2]  grad_of sin  split_with_a_missing_cotangent.py:4  return a.sin(), b.cos()
    del g_sin, cos_1
    full = torch.full([2], 0, dtype=torch.float32, device=device('cpu'), pin_memory=False)  # f32[2]  grad_of split  split_with_a_missing_cotangent.py:3  a, b = x.split(2)
    cat = torch.cat([mul_1, full])  # f32[4]  grad_of split  split_with_a_missing_cotangent.py:3  a, b = x.split(2)
    del mul_1, full
    return [cat]
