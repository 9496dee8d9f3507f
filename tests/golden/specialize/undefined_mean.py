# undefined: 1
def f(x):
    return torch.var_mean(x, dim=1)


inputs = (torch.randn(2, 3),)
# output
def backward(args):
    # 1 of 1 regions smaller
    #   grad_of var_mean (aten.var_mean.correction) 3 of 9 calls gone: no gradient arrives at var_mean_1
    # g_getitem: f32[2]
    # g_var_mean_1: f32[2]
    # x: f32[2, 3]
    # var_mean_1: f32[2]
    g_getitem, g_var_mean_1, x, var_mean_1 = args
    args.clear()
    unsqueeze = torch.unsqueeze(var_mean_1, 1)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del var_mean_1
    sub = torch.sub(x, unsqueeze)  # f32[2, 3]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del x, unsqueeze
    unsqueeze_2 = torch.unsqueeze(g_getitem, 1)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del g_getitem
    mul = torch.mul(unsqueeze_2, 2)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del unsqueeze_2
    div_1 = mul.div_(2)  # f32[2, 1]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del mul
    mul_1 = sub.mul_(div_1)  # f32[2, 3]  grad_of var_mean  undefined_mean.py:3  return torch.var_mean(x, dim=1)
    del div_1, sub
    return [mul_1]
