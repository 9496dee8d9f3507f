def f(x, a, b):
    trunk = x.tanh()
    return trunk * a, trunk * b


inputs = (torch.randn(3), torch.randn(3), torch.randn(3))
# output
def backward(args):
    # g_mul: f32[3]
    # g_mul_1: f32[3]
    # a: f32[3]
    # b: f32[3]
    # trunk: f32[3]
    g_mul, g_mul_1, a, b, trunk = args
    args.clear()
    if g_mul_1 is not None:
        mul_2 = torch.mul(g_mul_1, b)  # f32[3]  grad_of mul_1  two_heads.py:3  return trunk * a, trunk * b
        mul_3 = torch.mul(g_mul_1, trunk)  # f32[3]  grad_of mul_1  two_heads.py:3  return trunk * a, trunk * b
    else:
        mul_2 = mul_3 = None
    del b, g_mul_1
    if g_mul is not None:
        mul_4 = torch.mul(g_mul, a)  # f32[3]  grad_of mul  two_heads.py:3  return trunk * a, trunk * b
        mul_5 = torch.mul(g_mul, trunk)  # f32[3]  grad_of mul  two_heads.py:3  return trunk * a, trunk * b
    else:
        mul_4 = mul_5 = None
    del a, g_mul
    g_trunk = accumulate(mul_2, mul_4)  # f32[3]  total of trunk  two_heads.py:2  trunk = x.tanh()
    del mul_2, mul_4
    if g_trunk is not None:
        tanh_backward = aten.tanh_backward.default(g_trunk, trunk)  # f32[3]  grad_of trunk  two_heads.py:2  trunk = x.tanh()
    else:
        tanh_backward = None
    del g_trunk, trunk
    return [tanh_backward, mul_5, mul_3]
