# undefined: 0
def f(x):
    y = x.sin()
    return y.exp(), y * 2


inputs = (torch.randn(3),)
# output
def backward(args):
    # 1 of 3 regions removed
    #   grad_of exp (aten.exp.default) gone: no gradient arrives at exp
    # g_exp: f32[3]
    # g_mul: f32[3]
    # x: f32[3]
    g_exp, g_mul, x = args
    args.clear()
    mul_1 = torch.mul(g_mul, 2)  # f32[3]  grad_of mul  sum_loses_a_term.py:4  return y.exp(), y * 2
    del g_mul
    cos = torch.cos(x)  # f32[3]  grad_of y  sum_loses_a_term.py:3  y = x.sin()
    del x
    mul_4 = mul_1.mul_(cos)  # f32[3]  grad_of y  sum_loses_a_term.py:3  y = x.sin()
    del mul_1, cos
    return [mul_4]
