def f(x, w):
    return torch.exp(x @ w.t())


inputs = (torch.randn(2, 3), torch.randn(4, 3))
# output
def forward(args):
    # x: f32[2, 3]
    # w: f32[4, 3]
    x, w = args
    args.clear()
    t = torch.t(w)  # f32[3, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del w
    matmul = torch.mm(x, t)  # f32[2, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del x, t
    exp = matmul.exp_()  # f32[2, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del matmul
    return [exp]


def backward(args):
    # g_exp: f32[2, 4]
    # x: f32[2, 3]
    # w: f32[4, 3]
    # exp: f32[2, 4]
    g_exp, x, w, exp = args
    args.clear()
    mul = torch.mul(g_exp, exp)  # f32[2, 4]  grad_of exp  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del g_exp, exp
    mm = torch.mm(mul, w)  # f32[2, 3]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del w
    t_1 = torch.t(mul)  # f32[4, 2]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del mul
    mm_1 = torch.mm(t_1, x)  # f32[4, 3]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del t_1, x
    return [mm, mm_1]
