def f(x, weight, bias):
    return F.layer_norm(x, (4,), weight, bias)


inputs = (torch.randn(3, 4, requires_grad=True), torch.randn(4), torch.randn(4))
# output
def backward(args):
    # g_layer_norm: f32[3, 4]
    # x: f32[3, 4]
    # weight: f32[4]
    # bias: f32[4]
    # getitem_1: f32[3, 1]
    # getitem: f32[3, 1]
    g_layer_norm, x, weight, bias, getitem_1, getitem = args
    args.clear()
    native_layer_norm_backward = aten.native_layer_norm_backward.default(g_layer_norm, x, [4], getitem, getitem_1, weight, bias, [True, False, False])  # (f32[3, 4], NoneType, NoneType)  grad_of native_layer_norm  output_mask_is_narrowed.py:2  return F.layer_norm(x, (4,), weight, bias)
    del g_layer_norm, x, getitem, getitem_1, weight, bias
    item = native_layer_norm_backward[0]  # f32[3, 4]  grad_of native_layer_norm  output_mask_is_narrowed.py:2  return F.layer_norm(x, (4,), weight, bias)
    del native_layer_norm_backward
    return [item]
