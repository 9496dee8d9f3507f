def f(x, w):
    return torch.exp(x @ w.t())


inputs = (torch.randn(2, 3), torch.randn(4, 3))
# output
def forward(args):
    # w: f32[4, 3]
    # x: f32[2, 3]
    w, x = args
    args.clear()
    t = aten.t.default(w)  # f32[3, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del w
    matmul = aten.mm.default(x, t)  # f32[2, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del x, t
    exp = aten.exp.default(matmul)  # f32[2, 4]  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del matmul
    return [exp]


def backward(args):
    # g_exp: f32[2, 4]
    # w: f32[4, 3]
    # x: f32[2, 3]
    # exp: f32[2, 4]
    g_exp, w, x, exp = args
    args.clear()
    mul = aten.mul.Tensor(g_exp, exp)  # f32[2, 4]  grad_of exp  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del g_exp, exp
    mm = aten.mm.default(mul, w)  # f32[2, 3]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del w
    t_1 = aten.t.default(mul)  # f32[4, 2]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del mul
    mm_1 = aten.mm.default(t_1, x)  # f32[4, 3]  grad_of matmul  views_are_derived_again.py:2  return torch.exp(x @ w.t())
    del t_1, x
    return [mm_1, mm]
