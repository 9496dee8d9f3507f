# memory: small
def f(x):
    kept = F.dropout(x, 0.5)
    return (kept.sin() * kept.exp()).sum()


inputs = (torch.randn(16, 16),)
# output
def forward(args):
    # x: f32[16, 16]
    x, = args
    args.clear()
    native_dropout = torch.native_dropout(x, 0.5, True)  # (f32[16, 16], bool[16, 16])  what_is_drawn_is_saved_the_rest_computed_again.py:3  kept = F.dropout(x, 0.5)
    del x
    getitem = native_dropout[1]  # bool[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:3  kept = F.dropout(x, 0.5)
    kept = native_dropout[0]  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:3  kept = F.dropout(x, 0.5)
    del native_dropout
    sin = torch.sin(kept)  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    exp = torch.exp(kept)  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    mul = sin.mul_(exp)  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del sin, exp
    sum_1 = torch.sum(mul)  # f32[]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del mul
    return [sum_1, getitem, kept]


def backward(args):
    # g_sum_1: f32[]
    # getitem: bool[16, 16]
    # kept: f32[16, 16]
    g_sum_1, getitem, kept = args
    args.clear()
    expand = g_sum_1.expand([16, 16])  # f32[16, 16]  grad_of sum_1  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del g_sum_1
    exp = torch.exp(kept)  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    mul_1 = torch.mul(expand, exp)  # f32[16, 16]  grad_of mul  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    sin = torch.sin(kept)  # f32[16, 16]  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    mul_2 = sin.mul_(expand)  # f32[16, 16]  grad_of mul  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del expand, sin
    mul_3 = mul_2.mul_(exp)  # f32[16, 16]  grad_of exp  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del mul_2, exp
    cos = torch.cos(kept)  # f32[16, 16]  grad_of sin  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del kept
    mul_4 = mul_1.mul_(cos)  # f32[16, 16]  grad_of sin  what_is_drawn_is_saved_the_rest_computed_again.py:4  return (kept.sin() * kept.exp()).sum()
    del mul_1, cos
    g_kept = mul_3.add_(mul_4)  # f32[16, 16]  total of kept  what_is_drawn_is_saved_the_rest_computed_again.py:3  kept = F.dropout(x, 0.5)
    del mul_3, mul_4
    native_dropout_backward = aten.native_dropout_backward.default(g_kept, getitem, 2.0)  # f32[16, 16]  grad_of native_dropout  what_is_drawn_is_saved_the_rest_computed_again.py:3  kept = F.dropout(x, 0.5)
    del g_kept, getitem
    return [native_dropout_backward]
