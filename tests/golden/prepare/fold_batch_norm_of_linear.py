# prepare: fold_batch_norm_of_linear
def f(x, w, m, v):
    return F.batch_norm(F.linear(x, w), m, v, training=False).relu()


def declined(x, w, m, v):
    return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4], v[:4], training=False).relu()  # dimension 1 is another


inputs = (torch.randn(8192, 8).requires_grad_(), torch.randn(8, 8).requires_grad_(), torch.zeros(8), torch.ones(8))
# output
def f(args):
    # x: f32[8192, 8]
    # w: f32[8, 8]
    # m: f32[8]
    # v: f32[8]
    x, w, m, v = args
    args.clear()
    t = torch.t(w)  # f32[8, 8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del w
    add = torch.add(v, 1e-05)  # f32[8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del v
    rsqrt = torch.rsqrt(add)  # f32[8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del add
    neg = torch.neg(m)  # f32[8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del m
    mul = neg.mul_(rsqrt)  # f32[8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del neg
    mul_1 = torch.mul(t, rsqrt)  # f32[8, 8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del t, rsqrt
    batch_norm = torch.addmm(mul, x, mul_1)  # f32[8192, 8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del mul, x, mul_1
    relu = batch_norm.relu_()  # f32[8192, 8]  fold_batch_norm_of_linear.py:3  return F.batch_norm(F.linear(x, w), m, v, training=False).r…
    del batch_norm
    return [relu]


def declined(args):
    # x: f32[8192, 8]
    # w: f32[8, 8]
    # m: f32[8]
    # v: f32[8]
    x, w, m, v = args
    args.clear()
    view = x.reshape([2048, 4, 8])  # f32[2048, 4, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del x
    t = torch.t(w)  # f32[8, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del w
    view_1 = view.reshape([8192, 8])  # f32[8192, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del view
    mm = torch.mm(view_1, t)  # f32[8192, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del view_1, t
    linear = mm.reshape([2048, 4, 8])  # f32[2048, 4, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del mm
    getitem_3 = aten.slice.Tensor(m, 0, 0, 4)  # f32[4]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del m
    getitem_4 = aten.slice.Tensor(v, 0, 0, 4)  # f32[4]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del v
    _native_batch_norm_legit_no_training = torch._native_batch_norm_legit_no_training(linear, None, None, getitem_3, getitem_4, 0.1, 1e-05)  # (f32[2048, 4, 8], f32[0], f32[0])  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del linear, getitem_3, getitem_4
    batch_norm = _native_batch_norm_legit_no_training[0]  # f32[2048, 4, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del _native_batch_norm_legit_no_training
    relu = batch_norm.relu_()  # f32[2048, 4, 8]  fold_batch_norm_of_linear.py:7  return F.batch_norm(F.linear(x.view(2048, 4, 8), w), m[:4],…
    del batch_norm
    return [relu]
