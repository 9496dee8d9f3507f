# prepare: pack_convolutions
def f(x, w, b):
    return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))


def declined(x, w, b):
    y = F.conv2d(x, w + x.sum())  # no weight of the program's: it is another one at every call
    return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double(), w.double())


inputs = (torch.randn(2, 4, 6, 6), torch.nn.Parameter(torch.randn(4, 4, 3, 3)), torch.nn.Parameter(torch.randn(4)))
# output
def f(args):
    # x: f32[2, 4, 6, 6]
    # w: f32[4, 4, 3, 3]
    # b: f32[4]
    x, w, b = args
    args.clear()
    pack_filters = kernels.pack_filters(w, [1, 1], [1, 1], [1, 1], 1, [2, 4, 6, 6])  # f32[4, 4, 3, 3]  pack_convolutions.py:3  return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))
    del w
    pack_bias = kernels.pack_bias(b)  # f32[4]  pack_convolutions.py:3  return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))
    del b
    conv2d = kernels.convolve_packed(x, pack_filters, pack_bias, [1, 1], [1, 1], [1, 1], 1)  # f32[2, 4, 6, 6]  pack_convolutions.py:3  return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))
    del x, pack_filters, pack_bias
    relu = conv2d.relu_()  # f32[2, 4, 6, 6]  pack_convolutions.py:3  return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))
    del conv2d
    mean = torch.mean(relu, [2, 3])  # f32[2, 4]  pack_convolutions.py:3  return F.conv2d(x, w, b, padding=1).relu().mean((2, 3))
    del relu
    return [mean]


def declined(args):
    # x: f32[2, 4, 6, 6]
    # w: f32[4, 4, 3, 3]
    x, w = args
    args.clear()
    sum_1 = torch.sum(x)  # f32[]  pack_convolutions.py:7  y = F.conv2d(x, w + x.sum())  # no weight of the program's:…
    add = torch.add(w, sum_1)  # f32[4, 4, 3, 3]  pack_convolutions.py:7  y = F.conv2d(x, w + x.sum())  # no weight of the program's:…
    del sum_1
    y = torch.convolution(x, add, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f32[2, 4, 4, 4]  pack_convolutions.py:7  y = F.conv2d(x, w + x.sum())  # no weight of the program's:…
    del add
    relu = y.relu_()  # f32[2, 4, 4, 4]  pack_convolutions.py:8  return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double()…
    del y
    conv_transpose2d = torch.convolution(relu, w, None, [1, 1], [0, 0], [1, 1], True, [0, 0], 1)  # f32[2, 4, 6, 6]  pack_convolutions.py:8  return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double()…
    del relu
    double = aten._to_copy.default(x, dtype=torch.float64)  # f64[2, 4, 6, 6]  pack_convolutions.py:8  return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double()…
    del x
    double_1 = aten._to_copy.default(w, dtype=torch.float64)  # f64[4, 4, 3, 3]  pack_convolutions.py:8  return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double()…
    del w
    conv2d_1 = torch.convolution(double, double_1, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)  # f64[2, 4, 4, 4]  pack_convolutions.py:8  return F.conv_transpose2d(y.relu(), w), F.conv2d(x.double()…
    del double, double_1
    return [conv_transpose2d, conv2d_1]
