# prepare: transpose_of_product
def f(x, y):
    return (x.sin().t() @ y.cos().t()).t().sum(0)


def declined(x, y):
    return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().t().t()[:4].reshape(8, 2)).t().sum(0)


inputs = (torch.randn(4, 8), torch.randn(6, 4))
# output
def f(args):
    # x: f32[4, 8]
    # y: f32[6, 4]
    x, y = args
    args.clear()
    sin = torch.sin(x)  # f32[4, 8]  transpose_of_product.py:3  return (x.sin().t() @ y.cos().t()).t().sum(0)
    del x
    cos = torch.cos(y)  # f32[6, 4]  transpose_of_product.py:3  return (x.sin().t() @ y.cos().t()).t().sum(0)
    del y
    t_2 = torch.mm(cos, sin)  # f32[6, 8]  transpose_of_product.py:3  return (x.sin().t() @ y.cos().t()).t().sum(0)
    del cos, sin
    sum_1 = torch.sum(t_2, [0])  # f32[8]  transpose_of_product.py:3  return (x.sin().t() @ y.cos().t()).t().sum(0)
    del t_2
    return [sum_1]


def declined(args):
    # x: f32[4, 8]
    # y: f32[6, 4]
    x, y = args
    args.clear()
    sin = torch.sin(x)  # f32[4, 8]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    t = torch.t(sin)  # f32[8, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del sin
    cos = torch.cos(y)  # f32[6, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    t_1 = torch.t(cos)  # f32[4, 6]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del cos
    matmul = torch.mm(t, t_1)  # f32[8, 6]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del t, t_1
    t_2 = torch.t(matmul)  # f32[6, 8]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del matmul
    sin_1 = torch.sin(x)  # f32[4, 8]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del x
    cos_1 = torch.cos(y)  # f32[6, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del y
    t_3 = torch.t(cos_1)  # f32[4, 6]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del cos_1
    t_4 = torch.t(t_3)  # f32[6, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del t_3
    getitem = aten.slice.Tensor(t_4, 0, 0, 4)  # f32[4, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del t_4
    reshape = getitem.reshape([8, 2])  # f32[8, 2]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del getitem
    matmul_1 = torch.mm(sin_1, reshape)  # f32[4, 2]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del sin_1, reshape
    t_5 = torch.t(matmul_1)  # f32[2, 4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del matmul_1
    sum_1 = torch.sum(t_5, [0])  # f32[4]  transpose_of_product.py:7  return (x.sin().t() @ y.cos().t()).t(), (x.sin() @ y.cos().…
    del t_5
    return [t_2, sum_1]
