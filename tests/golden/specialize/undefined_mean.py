# undefined: 1
def f(x):
    return torch.var_mean(x, dim=1)


inputs = (torch.randn(2, 3),)
# output
def backward(args):
    # g_getitem: f32[2]
    # g_var_mean_1: f32[2]
    # x: f32[2, 3]
    # var_mean_1: f32[2]
    g_getitem, g_var_mean_1, x, var_mean_1 = args
    args.clear()
    unsqueeze = aten.unsqueeze.default(var_mean_1, 1)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del var_mean_1
    sub = aten.sub.Tensor(x, unsqueeze)  # f32[2, 3]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del x, unsqueeze
    unsqueeze_2 = aten.unsqueeze.default(g_getitem, 1)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del g_getitem
    mul = aten.mul.Tensor(unsqueeze_2, 2)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del unsqueeze_2
    div_1 = aten.div.Tensor(mul, 2)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del mul
    mul_1 = aten.mul.Tensor(div_1, sub)  # f32[2, 3]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del div_1, sub
    return [mul_1]
