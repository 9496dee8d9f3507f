# memory: small
def f(x, w):
    return ((x @ w).sin().exp().tanh() * 2).cos().sum()


inputs = (torch.randn(16, 16), torch.randn(16, 16))
# output
def forward(args):
    # x: f32[16, 16]
    # w: f32[16, 16]
    x, w = args
    args.clear()
    matmul = torch.mm(x, w)  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del x, w
    sin = torch.sin(matmul)  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    exp = sin.exp_()  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del sin
    tanh = torch.tanh(exp)  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    mul = torch.mul(tanh, 2)  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    cos = torch.cos(mul)  # f32[16, 16]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    sum_1 = torch.sum(cos)  # f32[]  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del cos
    return [sum_1, matmul, exp, tanh, mul]


def backward(args):
    # g_sum_1: f32[]
    # x: f32[16, 16]
    # w: f32[16, 16]
    # matmul: f32[16, 16]
    # exp: f32[16, 16]
    # tanh: f32[16, 16]
    # mul: f32[16, 16]
    g_sum_1, x, w, matmul, exp, tanh, mul = args
    args.clear()
    expand = g_sum_1.expand([16, 16])  # f32[16, 16]  grad_of sum_1  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del g_sum_1
    sin_1 = torch.sin(mul)  # f32[16, 16]  grad_of cos  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del mul
    neg = sin_1.neg_()  # f32[16, 16]  grad_of cos  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del sin_1
    mul_1 = neg.mul_(expand)  # f32[16, 16]  grad_of cos  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del expand, neg
    mul_2 = mul_1.mul_(2)  # f32[16, 16]  grad_of mul  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del mul_1
    tanh_backward = aten.tanh_backward.default(mul_2, tanh)  # f32[16, 16]  grad_of tanh  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del mul_2, tanh
    mul_4 = tanh_backward.mul_(exp)  # f32[16, 16]  grad_of exp  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del tanh_backward, exp
    cos_1 = torch.cos(matmul)  # f32[16, 16]  grad_of sin  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del matmul
    mul_5 = mul_4.mul_(cos_1)  # f32[16, 16]  grad_of sin  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del mul_4, cos_1
    t = torch.t(w)  # f32[16, 16]  grad_of matmul  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del w
    mm = torch.mm(mul_5, t)  # f32[16, 16]  grad_of matmul  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del t
    t_1 = torch.t(x)  # f32[16, 16]  grad_of matmul  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del x
    mm_1 = torch.mm(t_1, mul_5)  # f32[16, 16]  grad_of matmul  a_chain_that_is_read_at_once_is_saved.py:3  return ((x @ w).sin().exp().tanh() * 2).cos().sum()
    del t_1, mul_5
    return [mm, mm_1]
