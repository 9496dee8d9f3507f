def f(x):
    return x.permute(1, 2, 0)[:, 1].sin()


inputs = (torch.randn(2, 3, 4),)
# output
def backward(args):
    # g_sin: f32[3, 2]
    # x: f32[2, 3, 4]
    g_sin, x = args
    args.clear()
    permute = torch.permute(x, [1, 2, 0])  # f32[3, 4, 2]  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del x
    getitem = torch.select(permute, 1, 1)  # f32[3, 2]  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del permute
    cos = torch.cos(getitem)  # f32[3, 2]  grad_of sin  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del getitem
    mul = torch.mul(g_sin, cos)  # f32[3, 2]  grad_of sin  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del g_sin, cos
    select_backward = aten.select_backward.default(mul, [3, 4, 2], 1, 1)  # f32[3, 4, 2]  grad_of getitem  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del mul
    permute_1 = torch.permute(select_backward, [2, 0, 1])  # f32[2, 3, 4]  grad_of permute  inner_view_is_transposed.py:2  return x.permute(1, 2, 0)[:, 1].sin()
    del select_backward
    return [permute_1]
