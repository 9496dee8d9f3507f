def f(x):
    return torch.exp(torch.tanh(x))


inputs = (torch.randn(3),)
# output
def backward(args):
    # g_exp: f32[3]
    # tanh: f32[3]
    # exp: f32[3]
    g_exp, tanh, exp = args
    args.clear()
    mul = torch.mul(g_exp, exp)  # f32[3]  grad_of exp  tanh_saves_its_result.py:2  return torch.exp(torch.tanh(x))
    del g_exp, exp
    tanh_backward = aten.tanh_backward.default(mul, tanh)  # f32[3]  grad_of tanh  tanh_saves_its_result.py:2  return torch.exp(torch.tanh(x))
    del mul, tanh
    return [tanh_backward]
