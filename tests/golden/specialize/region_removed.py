# undefined: 1
def f(x, a, b):
    trunk = x.tanh()
    return trunk @ a, torch.relu(trunk @ b)


inputs = (torch.randn(4, 3), torch.randn(3, 2), torch.randn(3, 1))
# output
def backward(args):
    # 2 of 4 regions removed, 48 FLOPs less
    #   grad_of relu (aten.relu.default) gone: no gradient arrives at relu
    #   grad_of matmul_1 (aten.mm.default) gone: no gradient arrives at relu
    # g_matmul: f32[4, 2]
    # g_relu: f32[4, 1]
    # a: f32[3, 2]
    # trunk: f32[4, 3]
    g_matmul, g_relu, a, trunk = args
    args.clear()
    t_2 = torch.t(a)  # f32[2, 3]  grad_of matmul  region_removed.py:4  return trunk @ a, torch.relu(trunk @ b)
    del a
    mm_2 = torch.mm(g_matmul, t_2)  # f32[4, 3]  grad_of matmul  region_removed.py:4  return trunk @ a, torch.relu(trunk @ b)
    del t_2
    t_3 = torch.t(trunk)  # f32[3, 4]  grad_of matmul  region_removed.py:4  return trunk @ a, torch.relu(trunk @ b)
    mm_3 = torch.mm(t_3, g_matmul)  # f32[3, 2]  grad_of matmul  region_removed.py:4  return trunk @ a, torch.relu(trunk @ b)
    del t_3, g_matmul
    tanh_backward = aten.tanh_backward.default(mm_2, trunk)  # f32[4, 3]  grad_of trunk  region_removed.py:3  trunk = x.tanh()
    del mm_2, trunk
    return [tanh_backward, mm_3, None]
