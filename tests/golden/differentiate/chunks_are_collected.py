def f(x):
    a, b, c = x.chunk(3)
    return a * b + c


inputs = (torch.randn(6),)
# output
def backward(args):
    # g_add: f32[2]
    # x: f32[6]
    g_add, x = args
    args.clear()
    split = aten.split.Tensor(x, 2)  # (f32[2], f32[2], f32[2])  chunks_are_collected.py:2  a, b, c = x.chunk(3)
    del x
    getitem_1 = split[1]  # f32[2]  chunks_are_collected.py:2  a, b, c = x.chunk(3)
    mul_1 = torch.mul(g_add, getitem_1)  # f32[2]  grad_of mul  chunks_are_collected.py:3  return a * b + c
    del getitem_1
    getitem = split[0]  # f32[2]  chunks_are_collected.py:2  a, b, c = x.chunk(3)
    del split
    mul_2 = torch.mul(g_add, getitem)  # f32[2]  grad_of mul  chunks_are_collected.py:3  return a * b + c
    del getitem
    cat = torch.cat([mul_1, mul_2, g_add])  # f32[6]  grad_of split  chunks_are_collected.py:2  a, b, c = x.chunk(3)
    del mul_1, mul_2, g_add
    return [cat]
