# prepare: fuse_parallel_linears!
def f(x, u, v, w):
    q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    return (q @ k.t()).softmax(-1) @ v


def declined(x, u, v, w):
    return F.linear(x, u).sin(), F.linear(x, v).sin()  # two heads: one may get no gradient


inputs = (torch.randn(3, 4), torch.randn(4, 4), torch.randn(4, 4), torch.randn(4, 4))
# output
def f(args):
    # x: f32[3, 4]
    # u: f32[4, 4]
    # v: f32[4, 4]
    # w: f32[4, 4]
    x, u, v, w = args
    args.clear()
    cat = torch.cat([u, v, w])  # f32[12, 4]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    del u, v, w
    t_5 = torch.t(cat)  # f32[4, 12]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    del cat
    mm_5 = torch.mm(x, t_5)  # f32[3, 12]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    del x, t_5
    split_with_sizes = torch.split_with_sizes(mm_5, [4, 4, 4], 1)  # (f32[3, 4], f32[3, 4], f32[3, 4])  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    del mm_5
    q = split_with_sizes[0]  # f32[3, 4]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    k = split_with_sizes[1]  # f32[3, 4]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    v_1 = split_with_sizes[2]  # f32[3, 4]  fuse_parallel_linears.py:3  q, k, v = F.linear(x, u), F.linear(x, v), F.linear(x, w)
    del split_with_sizes
    t_4 = torch.t(k)  # f32[4, 3]  fuse_parallel_linears.py:4  return (q @ k.t()).softmax(-1) @ v
    del k
    matmul = torch.mm(q, t_4)  # f32[3, 3]  fuse_parallel_linears.py:4  return (q @ k.t()).softmax(-1) @ v
    del q, t_4
    softmax = torch._softmax(matmul, -1, False)  # f32[3, 3]  fuse_parallel_linears.py:4  return (q @ k.t()).softmax(-1) @ v
    del matmul
    matmul_1 = torch.mm(softmax, v_1)  # f32[3, 4]  fuse_parallel_linears.py:4  return (q @ k.t()).softmax(-1) @ v
    del softmax, v_1
    return [matmul_1]


def declined(args):
    # x: f32[3, 4]
    # u: f32[4, 4]
    # v: f32[4, 4]
    x, u, v = args
    args.clear()
    t = torch.t(u)  # f32[4, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del u
    linear = torch.mm(x, t)  # f32[3, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del t
    sin = torch.sin(linear)  # f32[3, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del linear
    t_1 = torch.t(v)  # f32[4, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del v
    linear_1 = torch.mm(x, t_1)  # f32[3, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del x, t_1
    sin_1 = torch.sin(linear_1)  # f32[3, 4]  fuse_parallel_linears.py:8  return F.linear(x, u).sin(), F.linear(x, v).sin()  # two he…
    del linear_1
    return [sin, sin_1]
