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
    if g_var_mean_1 is not None or g_getitem is not None:
        unsqueeze = torch.unsqueeze(var_mean_1, 1)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        sub = torch.sub(x, unsqueeze)  # f32[2, 3]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del unsqueeze
        g = torch.zeros([2], dtype=torch.float32, device=device('cpu')) if g_var_mean_1 is None else g_var_mean_1  # f32[2]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        unsqueeze_1 = torch.unsqueeze(g, 1)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del g
        div = torch.div(unsqueeze_1, 3)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del unsqueeze_1
        g_1 = torch.zeros([2], dtype=torch.float32, device=device('cpu')) if g_getitem is None else g_getitem  # f32[2]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        unsqueeze_2 = torch.unsqueeze(g_1, 1)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del g_1
        mul = torch.mul(unsqueeze_2, 2)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del unsqueeze_2
        div_1 = torch.div(mul, 2)  # f32[2, 1]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del mul
        mul_1 = torch.mul(div_1, sub)  # f32[2, 3]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del div_1, sub
        add = torch.add(mul_1, div)  # f32[2, 3]  grad_of var_mean  one_missing_beside_another.py:2  return torch.var_mean(x, dim=1)
        del mul_1, div
    else:
        add = None
    del var_mean_1, x, g_var_mean_1, g_getitem
    return [add]
