# prepare: fold_batch_norm
def f(x, w, m, v, g, b):
    return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=False).relu()


def declined(x, w, m, v, g, b):
    return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g, b, training=True).relu()


inputs = (torch.randn(2, 3, 96, 96), torch.randn(4, 3, 3, 3).requires_grad_(), torch.zeros(4), torch.ones(4),
          torch.ones(4).requires_grad_(), torch.zeros(4).requires_grad_())
# output
def f(args):
    # x: f32[2, 3, 96, 96]
    # w: f32[4, 3, 3, 3]
    # m: f32[4]
    # v: f32[4]
    # g: f32[4]
    # b: f32[4]
    x, w, m, v, g, b = args
    args.clear()
    add = torch.add(v, 1e-05)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del v
    rsqrt = torch.rsqrt(add)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del add
    mul = rsqrt.mul_(g)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del rsqrt, g
    neg = torch.neg(m)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del m
    mul_1 = neg.mul_(mul)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del neg
    add_1 = mul_1.add_(b)  # f32[4]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del mul_1, b
    view = mul.reshape([-1, 1, 1, 1])  # f32[4, 1, 1, 1]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del mul
    mul_2 = torch.mul(w, view)  # f32[4, 3, 3, 3]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del w, view
    batch_norm = torch.convolution(x, mul_2, add_1, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 94, 94]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del x, mul_2, add_1
    relu = batch_norm.relu_()  # f32[2, 4, 94, 94]  fold_batch_norm.py:3  return F.batch_norm(F.conv2d(x, w), m, v, g, b, training=Fa…
    del batch_norm
    return [relu]


def declined(args):
    # x: f32[2, 3, 96, 96]
    # w: f32[4, 3, 3, 3]
    # m: f32[4]
    # v: f32[4]
    # g: f32[4]
    # b: f32[4]
    x, w, m, v, g, b = args
    args.clear()
    conv2d = torch.convolution(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 94, 94]  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del x, w
    clone = torch.clone(m)  # f32[4]  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del m
    clone_1 = torch.clone(v)  # f32[4]  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del v
    _native_batch_norm_legit_functional = aten._native_batch_norm_legit_functional.default(conv2d, g, b, clone, clone_1, True, 0.1, 1e-05)  # (f32[2, 4, 94, 94], f32[4], f32[4], f32[4], f32[4])  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del conv2d, g, b, clone, clone_1
    batch_norm = _native_batch_norm_legit_functional[0]  # f32[2, 4, 94, 94]  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del _native_batch_norm_legit_functional
    relu = batch_norm.relu_()  # f32[2, 4, 94, 94]  fold_batch_norm.py:7  return F.batch_norm(F.conv2d(x, w), m.clone(), v.clone(), g…
    del batch_norm
    return [relu]
