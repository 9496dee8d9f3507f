def f(x, a, b):
    trunk = x.tanh()
    return trunk @ a, torch.relu(trunk @ b)


inputs = (torch.randn(4, 3), torch.randn(3, 2), torch.randn(3, 1))
# output
def backward(args):
    # g_matmul: f32[4, 2]
    # g_relu: f32[4, 1]
    # a: f32[3, 2]
    # b: f32[3, 1]
    # trunk: f32[4, 3]
    # relu: f32[4, 1]
    g_matmul, g_relu, a, b, trunk, relu = args
    args.clear()
    threshold_backward = aten.threshold_backward.default(g_relu, relu, 0)  # f32[4, 1]  grad_of relu  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del g_relu, relu
    t = torch.t(b)  # f32[1, 3]  grad_of matmul_1  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del b
    mm = torch.mm(threshold_backward, t)  # f32[4, 3]  grad_of matmul_1  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del t
    t_1 = torch.t(trunk)  # f32[3, 4]  grad_of matmul_1  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    mm_1 = torch.mm(t_1, threshold_backward)  # f32[3, 1]  grad_of matmul_1  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del t_1, threshold_backward
    t_2 = torch.t(a)  # f32[2, 3]  grad_of matmul  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del a
    g_trunk = mm.addmm_(g_matmul, t_2)  # f32[4, 3]  total of trunk  all_defined_declines.py:2  trunk = x.tanh()
    del mm, t_2
    t_3 = torch.t(trunk)  # f32[3, 4]  grad_of matmul  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    mm_3 = torch.mm(t_3, g_matmul)  # f32[3, 2]  grad_of matmul  all_defined_declines.py:3  return trunk @ a, torch.relu(trunk @ b)
    del t_3, g_matmul
    tanh_backward = aten.tanh_backward.default(g_trunk, trunk)  # f32[4, 3]  grad_of trunk  all_defined_declines.py:2  trunk = x.tanh()
    del g_trunk, trunk
    return [tanh_backward, mm_3, mm_1]
