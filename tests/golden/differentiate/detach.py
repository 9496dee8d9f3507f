def f(x):
    return x * x.detach().exp()


inputs = (torch.randn(3),)
# output
def backward(args):
    # g_mul: f32[3]
    # exp: f32[3]
    g_mul, exp = args
    args.clear()
    mul_1 = torch.mul(g_mul, exp)  # f32[3]  grad_of mul  detach.py:2  return x * x.detach().exp()
    del g_mul, exp
    return [mul_1]
