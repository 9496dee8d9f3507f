# prepare: batch_layer_norms!
def f(x, y, w, b):
    return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), b, w)


def declined(x, y, w, b):
    return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), w, b, eps=0.1)


inputs = (torch.randn(3, 4), torch.randn(3, 4), torch.randn(4), torch.randn(4))
# output
def f(args):
    # x: f32[3, 4]
    # w: f32[4]
    # b: f32[4]
    # y: f32[3, 4]
    x, w, b, y = args
    args.clear()
    stack = torch.stack([x, y])  # f32[2, 3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del x, y
    native_layer_norm_2 = torch.native_layer_norm(stack, [4], None, None, 1e-05)  # (f32[2, 3, 4], f32[2, 3, 1], f32[2, 3, 1])  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del stack
    item = native_layer_norm_2[0]  # f32[2, 3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del native_layer_norm_2
    stack_1 = torch.stack([w, b])  # f32[2, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    view = stack_1.reshape([2, 1, 4])  # f32[2, 1, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del stack_1
    mul_1 = item.mul_(view)  # f32[2, 3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del item, view
    stack_2 = torch.stack([b, w])  # f32[2, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del b, w
    view_1 = stack_2.reshape([2, 1, 4])  # f32[2, 1, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del stack_2
    add = mul_1.add_(view_1)  # f32[2, 3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del mul_1, view_1
    unbind = torch.unbind(add)  # (f32[3, 4], f32[3, 4])  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del add
    layer_norm = unbind[0]  # f32[3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    layer_norm_1 = unbind[1]  # f32[3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del unbind
    mul = torch.mul(layer_norm, layer_norm_1)  # f32[3, 4]  batch_layer_norms.py:3  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del layer_norm, layer_norm_1
    return [mul]


def declined(args):
    # x: f32[3, 4]
    # w: f32[4]
    # b: f32[4]
    # y: f32[3, 4]
    x, w, b, y = args
    args.clear()
    native_layer_norm = torch.native_layer_norm(x, [4], w, b, 1e-05)  # (f32[3, 4], f32[3, 1], f32[3, 1])  batch_layer_norms.py:7  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del x
    layer_norm = native_layer_norm[0]  # f32[3, 4]  batch_layer_norms.py:7  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del native_layer_norm
    native_layer_norm_1 = torch.native_layer_norm(y, [4], w, b, 0.1)  # (f32[3, 4], f32[3, 1], f32[3, 1])  batch_layer_norms.py:7  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del y, w, b
    layer_norm_1 = native_layer_norm_1[0]  # f32[3, 4]  batch_layer_norms.py:7  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del native_layer_norm_1
    mul = layer_norm.mul_(layer_norm_1)  # f32[3, 4]  batch_layer_norms.py:7  return F.layer_norm(x, (4,), w, b) * F.layer_norm(y, (4,), …
    del layer_norm, layer_norm_1
    return [mul]
