# undefined: 1
def f(x, y):
    a, b = x.sin(), y.cos()
    return torch.cat([a, b]), b.exp()


inputs = (torch.randn(2), torch.randn(2))
# output
def backward(args):
    # 1 of 4 regions removed
    #   grad_of exp (aten.exp.default) gone: no gradient arrives at exp
    # g_cat: f32[4]
    # g_exp: f32[2]
    # x: f32[2]
    # y: f32[2]
    g_cat, g_exp, x, y = args
    args.clear()
    split_with_sizes = torch.split_with_sizes(g_cat, [2, 2])  # (f32[2], f32[2])  grad_of cat  cat_with_a_missing_piece.py:4  return torch.cat([a, b]), b.exp()
    del g_cat
    item = split_with_sizes[0]  # f32[2]  grad_of cat  cat_with_a_missing_piece.py:4  return torch.cat([a, b]), b.exp()
    item_1 = split_with_sizes[1]  # f32[2]  grad_of cat  cat_with_a_missing_piece.py:4  return torch.cat([a, b]), b.exp()
    del split_with_sizes
    sin = torch.sin(y)  # f32[2]  grad_of b  cat_with_a_missing_piece.py:3  a, b = x.sin(), y.cos()
    del y
    neg = sin.neg_()  # f32[2]  grad_of b  cat_with_a_missing_piece.py:3  a, b = x.sin(), y.cos()
    del sin
    mul_1 = neg.mul_(item_1)  # f32[2]  grad_of b  cat_with_a_missing_piece.py:3  a, b = x.sin(), y.cos()
    del item_1, neg
    cos = torch.cos(x)  # f32[2]  grad_of a  cat_with_a_missing_piece.py:3  a, b = x.sin(), y.cos()
    del x
    mul_2 = cos.mul_(item)  # f32[2]  grad_of a  cat_with_a_missing_piece.py:3  a, b = x.sin(), y.cos()
    del item, cos
    return [mul_2, mul_1]
