# undefined: 0
def f(x):
    return torch.var_mean(x, dim=1)


inputs = (torch.randn(2, 3),)
# output
def backward(args):
    # 1 of 1 regions smaller
    #   grad_of var_mean (aten.var_mean.correction) 6 of 9 calls gone: no gradient arrives at getitem
    # g_getitem: f32[2]
    # g_var_mean_1: f32[2]
    g_getitem, g_var_mean_1 = args
    args.clear()
    unsqueeze_1 = torch.unsqueeze(g_var_mean_1, 1)  # f32[2, 1]  grad_of var_mean  undefined_variance.py:3  return torch.var_mean(x, dim=1)
    del g_var_mean_1
    div = torch.div(unsqueeze_1, 3)  # f32[2, 1]  grad_of var_mean  undefined_variance.py:3  return torch.var_mean(x, dim=1)
    del unsqueeze_1
    expand = div.expand([2, 3])  # f32[2, 3]  grad_of var_mean  undefined_variance.py:3  return torch.var_mean(x, dim=1)
    del div
    return [expand]
