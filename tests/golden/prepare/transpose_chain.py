# prepare: transpose_chain
def carried_down(x, w, v):
    first = torch.ops.aten.select_backward(torch.ones_like(x[:, 0]), [512, 2], 1, 0)
    tangent = first @ w
    tangent_2 = tangent @ v
    return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()


def f(x, w, v):
    return carried_down(x, w, v)[:, 0].sum()


def declined(x, w, v):
    return carried_down(x, w, v)[:, 1].sum()  # a direction in which no tangent is known


inputs = (torch.randn(512, 2), torch.randn(2, 64), torch.randn(64, 64))
# output
def f(args):
    # x: f32[512, 2]
    # w: f32[2, 64]
    # v: f32[64, 64]
    x, w, v = args
    args.clear()
    getitem = torch.select(x, 1, 0)  # f32[512]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del x
    ones_like = torch.ones_like(getitem, pin_memory=False)  # f32[512]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del getitem
    first = aten.select_backward.default(ones_like, [512, 2], 1, 0)  # f32[512, 2]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del ones_like
    tangent = torch.mm(first, w)  # f32[512, 64]  transpose_chain.py:4  tangent = first @ w
    del first, w
    tangent_2 = torch.mm(tangent, v)  # f32[512, 64]  transpose_chain.py:5  tangent_2 = tangent @ v
    del v
    cos = torch.cos(tangent)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    sin = torch.sin(tangent_2)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    mul = tangent_2.mul_(sin)  # f32[512, 64]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del tangent_2, sin
    sum_2 = torch.sum(mul, [1])  # f32[512]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del mul
    mul_1 = tangent.mul_(cos)  # f32[512, 64]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del tangent, cos
    sum_3 = torch.sum(mul_1, [1])  # f32[512]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del mul_1
    getitem_1 = sum_2.add_(sum_3)  # f32[512]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del sum_2, sum_3
    sum_1 = torch.sum(getitem_1)  # f32[]  transpose_chain.py:10  return carried_down(x, w, v)[:, 0].sum()
    del getitem_1
    return [sum_1]


def declined(args):
    # x: f32[512, 2]
    # w: f32[2, 64]
    # v: f32[64, 64]
    x, w, v = args
    args.clear()
    getitem = torch.select(x, 1, 0)  # f32[512]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del x
    ones_like = torch.ones_like(getitem, pin_memory=False)  # f32[512]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del getitem
    first = aten.select_backward.default(ones_like, [512, 2], 1, 0)  # f32[512, 2]  transpose_chain.py:3  first = torch.ops.aten.select_backward(torch.ones_like(x[:,…
    del ones_like
    tangent = torch.mm(first, w)  # f32[512, 64]  transpose_chain.py:4  tangent = first @ w
    del first
    tangent_2 = torch.mm(tangent, v)  # f32[512, 64]  transpose_chain.py:5  tangent_2 = tangent @ v
    cos = torch.cos(tangent)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del tangent
    sin = torch.sin(tangent_2)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del tangent_2
    t = torch.t(v)  # f32[64, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del v
    matmul_2 = torch.mm(sin, t)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del sin, t
    add = cos.add_(matmul_2)  # f32[512, 64]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del cos, matmul_2
    t_1 = torch.t(w)  # f32[64, 2]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del w
    matmul_3 = torch.mm(add, t_1)  # f32[512, 2]  transpose_chain.py:6  return (tangent.cos() + tangent_2.sin() @ v.t()) @ w.t()
    del add, t_1
    getitem_1 = torch.select(matmul_3, 1, 1)  # f32[512]  transpose_chain.py:14  return carried_down(x, w, v)[:, 1].sum()  # a direction in …
    del matmul_3
    sum_1 = torch.sum(getitem_1)  # f32[]  transpose_chain.py:14  return carried_down(x, w, v)[:, 1].sum()  # a direction in …
    del getitem_1
    return [sum_1]
