def f(x, scale):
    return x * scale


inputs = (torch.randn(4, 3), torch.randn(3))
# output
def backward(args):
    # g_mul: f32[4, 3]
    # x: f32[4, 3]
    # scale: f32[3]
    g_mul, x, scale = args
    args.clear()
    mul_1 = torch.mul(g_mul, scale)  # f32[4, 3]  grad_of mul  broadcast_is_summed.py:2  return x * scale
    del scale
    mul_2 = torch.mul(g_mul, x)  # f32[4, 3]  grad_of mul  broadcast_is_summed.py:2  return x * scale
    del g_mul, x
    sum_1 = torch.sum(mul_2, [0])  # f32[3]  grad_of mul  broadcast_is_summed.py:2  return x * scale
    del mul_2
    return [mul_1, sum_1]
