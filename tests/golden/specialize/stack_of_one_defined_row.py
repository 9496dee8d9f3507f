# undefined: 0
def f(x):
    a, b = x.unbind(0)
    return a.exp(), b.exp()


inputs = (torch.randn(2, 3),)
# output
def backward(args):
    # 1 of 3 regions removed
    #   grad_of exp (aten.exp.default) gone: no gradient arrives at exp
    # g_exp: f32[3]
    # g_exp_1: f32[3]
    # exp_1: f32[3]
    g_exp, g_exp_1, exp_1 = args
    args.clear()
    mul = torch.mul(g_exp_1, exp_1)  # f32[3]  grad_of exp_1  stack_of_one_defined_row.py:4  return a.exp(), b.exp()
    del g_exp_1, exp_1
    full = torch.full([3], 0, dtype=torch.float32, device=device('cpu'), pin_memory=False)  # f32[3]  grad_of unbind  stack_of_one_defined_row.py:3  a, b = x.unbind(0)
    stack = torch.stack([full, mul])  # f32[2, 3]  grad_of unbind  stack_of_one_defined_row.py:3  a, b = x.unbind(0)
    del full, mul
    return [stack]
