def f(x):
    a, b, c = (x + 1).chunk(3, dim=1)
    return a + b + c.exp() * c


inputs = (torch.randn(2, 6),)
# output
def forward(args):
    # x: f32[2, 6]
    x, = args
    args.clear()
    add = torch.add(x, 1)  # f32[2, 6]  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del x
    split = aten.split.Tensor(add, 2, 1)  # (f32[2, 2], f32[2, 2], f32[2, 2])  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del add
    getitem = split[0]  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    getitem_1 = split[1]  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    chunk = split[2]  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del split
    chunk_copy = torch.clone(chunk)  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del chunk
    add_1 = torch.add(getitem, getitem_1)  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    del getitem, getitem_1
    exp = torch.exp(chunk_copy)  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    mul = torch.mul(exp, chunk_copy)  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    add_2 = add_1.add_(mul)  # f32[2, 2]  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    del add_1, mul
    return [add_2, chunk_copy, exp]


def backward(args):
    # g_add_2: f32[2, 2]
    # chunk_copy: f32[2, 2]
    # exp: f32[2, 2]
    g_add_2, chunk_copy, exp = args
    args.clear()
    mul_1 = torch.mul(g_add_2, chunk_copy)  # f32[2, 2]  grad_of mul  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    del chunk_copy
    mul_2 = torch.mul(g_add_2, exp)  # f32[2, 2]  grad_of mul  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    mul_3 = mul_1.mul_(exp)  # f32[2, 2]  grad_of exp  a_small_view_is_saved_as_a_copy.py:3  return a + b + c.exp() * c
    del mul_1, exp
    g_chunk = mul_2.add_(mul_3)  # f32[2, 2]  total of chunk  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del mul_2, mul_3
    cat = torch.cat([g_add_2, g_add_2, g_chunk], 1)  # f32[2, 6]  grad_of split  a_small_view_is_saved_as_a_copy.py:2  a, b, c = (x + 1).chunk(3, dim=1)
    del g_add_2, g_chunk
    return [cat]
