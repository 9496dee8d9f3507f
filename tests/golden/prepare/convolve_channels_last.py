# prepare: convolve_channels_last
def f(x, w, v, s):
    y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    return y, y.mean((2, 3)), s * 2


def declined(x, w, v, s):
    return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :, :5, :5], w) * s


inputs = (torch.randn(2, 3, 24, 24), torch.randn(4, 3, 3, 3), torch.randn(4, 4, 1, 1), torch.ones(()).requires_grad_())
# output
def f(args):
    # x: f32[2, 3, 24, 24]
    # w: f32[4, 3, 3, 3]
    # v: f32[4, 4, 1, 1]
    # s: f32[]
    x, w, v, s = args
    args.clear()
    clone_1 = torch.clone(x, memory_format=torch.channels_last)  # f32[2, 3, 24, 24]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del x
    conv2d = torch.convolution(clone_1, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 22, 22]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del clone_1, w
    relu = conv2d.relu_()  # f32[2, 4, 22, 22]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del conv2d
    max_pool2d_with_indices = aten.max_pool2d_with_indices.default(relu, [2, 2])  # (f32[2, 4, 11, 11], i64[2, 4, 11, 11])  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del relu
    max_pool2d = max_pool2d_with_indices[0]  # f32[2, 4, 11, 11]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del max_pool2d_with_indices
    convolution_2 = torch.convolution(max_pool2d, v, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 11, 11]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del max_pool2d, v
    y = torch.clone(convolution_2, memory_format=torch.contiguous_format)  # f32[2, 4, 11, 11]  convolve_channels_last.py:3  y = F.conv2d(F.max_pool2d(F.conv2d(x, w).relu(), 2), v)
    del convolution_2
    mean = torch.mean(y, [2, 3])  # f32[2, 4]  convolve_channels_last.py:4  return y, y.mean((2, 3)), s * 2
    mul = torch.mul(s, 2)  # f32[]  convolve_channels_last.py:4  return y, y.mean((2, 3)), s * 2
    del s
    return [y, mean, mul]


def declined(args):
    # x: f32[2, 3, 24, 24]
    # w: f32[4, 3, 3, 3]
    # s: f32[]
    x, w, s = args
    args.clear()
    slice_1 = aten.slice.Tensor(x, 2, 0, 4)  # f32[2, 3, 4, 24]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    getitem = aten.slice.Tensor(slice_1, 3, 0, 4)  # f32[2, 3, 4, 4]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del slice_1
    conv2d = torch.convolution(getitem, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 2, 2]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del getitem
    relu = conv2d.relu_()  # f32[2, 4, 2, 2]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del conv2d
    slice_3 = aten.slice.Tensor(x, 2, 0, 5)  # f32[2, 3, 5, 24]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del x
    getitem_1 = aten.slice.Tensor(slice_3, 3, 0, 5)  # f32[2, 3, 5, 5]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del slice_3
    conv2d_1 = torch.convolution(getitem_1, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 3, 3]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del getitem_1, w
    mul = conv2d_1.mul_(s)  # f32[2, 4, 3, 3]  convolve_channels_last.py:8  return F.conv2d(x[:, :, :4, :4], w).relu(), F.conv2d(x[:, :…
    del conv2d_1, s
    return [relu, mul]
