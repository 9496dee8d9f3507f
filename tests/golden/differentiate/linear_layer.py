def f(x, weight, bias):
    return F.linear(x, weight, bias)


inputs = (torch.randn(4, 3), torch.randn(2, 3), torch.randn(2))
# output
def backward(args):
    # g_linear: f32[4, 2]
    # x: f32[4, 3]
    # weight: f32[2, 3]
    g_linear, x, weight = args
    args.clear()
    mm = torch.mm(g_linear, weight)  # f32[4, 3]  grad_of linear  linear_layer.py:2  return F.linear(x, weight, bias)
    del weight
    t_1 = torch.t(g_linear)  # f32[2, 4]  grad_of linear  linear_layer.py:2  return F.linear(x, weight, bias)
    mm_1 = torch.mm(t_1, x)  # f32[2, 3]  grad_of linear  linear_layer.py:2  return F.linear(x, weight, bias)
    del t_1, x
    sum_1 = torch.sum(g_linear, [0])  # f32[2]  grad_of linear  linear_layer.py:2  return F.linear(x, weight, bias)
    del g_linear
    return [mm, mm_1, sum_1]
