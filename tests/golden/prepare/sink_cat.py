# prepare: sink_cat!
def f(x, y):
    return torch.cat((x, y), -1).view(3, 2, 3).tanh()


def declined(x, y):
    return torch.cat((x, y.double()), -1).tanh()  # x would be rounded otherwise


inputs = (torch.randn(3, 3), torch.randn(3, 3))
# output
def f(args):
    # x: f32[3, 3]
    # y: f32[3, 3]
    x, y = args
    args.clear()
    tanh_1 = torch.tanh(x)  # f32[3, 3]  sink_cat.py:3  return torch.cat((x, y), -1).view(3, 2, 3).tanh()
    del x
    tanh_2 = torch.tanh(y)  # f32[3, 3]  sink_cat.py:3  return torch.cat((x, y), -1).view(3, 2, 3).tanh()
    del y
    cat_1 = torch.cat([tanh_1, tanh_2], -1)  # f32[3, 6]  sink_cat.py:3  return torch.cat((x, y), -1).view(3, 2, 3).tanh()
    del tanh_1, tanh_2
    tanh = cat_1.reshape([3, 2, 3])  # f32[3, 2, 3]  sink_cat.py:3  return torch.cat((x, y), -1).view(3, 2, 3).tanh()
    del cat_1
    return [tanh]


def declined(args):
    # y: f32[3, 3]
    # x: f32[3, 3]
    y, x = args
    args.clear()
    double = aten._to_copy.default(y, dtype=torch.float64)  # f64[3, 3]  sink_cat.py:7  return torch.cat((x, y.double()), -1).tanh()  # x would be …
    del y
    cat = torch.cat([x, double], -1)  # f64[3, 6]  sink_cat.py:7  return torch.cat((x, y.double()), -1).tanh()  # x would be …
    del x, double
    tanh = cat.tanh_()  # f64[3, 6]  sink_cat.py:7  return torch.cat((x, y.double()), -1).tanh()  # x would be …
    del cat
    return [tanh]
