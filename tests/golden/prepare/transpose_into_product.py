# prepare: transpose_into_product
def f(x, y):
    return x.sin().t().contiguous() @ y


def declined(x, y):
    return x.t().contiguous() @ y, x.sin().t()[::2].contiguous() @ y[:, ::2]


inputs = (torch.randn(4, 8), torch.randn(4, 6))
# output
def f(args):
    # x: f32[4, 8]
    # y: f32[4, 6]
    x, y = args
    args.clear()
    sin = torch.sin(x)  # f32[4, 8]  transpose_into_product.py:3  return x.sin().t().contiguous() @ y
    del x
    t = torch.t(sin)  # f32[8, 4]  transpose_into_product.py:3  return x.sin().t().contiguous() @ y
    del sin
    matmul = torch.mm(t, y)  # f32[8, 6]  transpose_into_product.py:3  return x.sin().t().contiguous() @ y
    del t, y
    return [matmul]


def declined(args):
    # x: f32[4, 8]
    # y: f32[4, 6]
    x, y = args
    args.clear()
    t = torch.t(x)  # f32[8, 4]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    contiguous = torch.clone(t, memory_format=torch.contiguous_format)  # f32[8, 4]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del t
    matmul = torch.mm(contiguous, y)  # f32[8, 6]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del contiguous
    sin = torch.sin(x)  # f32[4, 8]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del x
    t_1 = torch.t(sin)  # f32[8, 4]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del sin
    getitem = aten.slice.Tensor(t_1, 0, 0, 9223372036854775807, 2)  # f32[4, 4]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del t_1
    contiguous_1 = torch.clone(getitem, memory_format=torch.contiguous_format)  # f32[4, 4]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del getitem
    getitem_1 = aten.slice.Tensor(y, 1, 0, 9223372036854775807, 2)  # f32[4, 3]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del y
    matmul_1 = torch.mm(contiguous_1, getitem_1)  # f32[4, 3]  transpose_into_product.py:7  return x.t().contiguous() @ y, x.sin().t()[::2].contiguous(…
    del contiguous_1, getitem_1
    return [matmul, matmul_1]
