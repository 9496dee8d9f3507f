# prepare: batch_pointwise!
def f(x, y):
    return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)


def declined(x, y):
    return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) * x.tanh() * y.double().tanh()


inputs = (torch.randn(3, 4), torch.randn(3, 4))
# output
def f(args):
    # x: f32[3, 4]
    # y: f32[3, 4]
    x, y = args
    args.clear()
    stack = torch.stack([x, y])  # f32[2, 3, 4]  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    del x, y
    nan_to_num_2 = torch.nan_to_num(stack, 1.0)  # f32[2, 3, 4]  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    del stack
    unbind = torch.unbind(nan_to_num_2)  # (f32[3, 4], f32[3, 4])  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    del nan_to_num_2
    nan_to_num = unbind[0]  # f32[3, 4]  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    nan_to_num_1 = unbind[1]  # f32[3, 4]  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    del unbind
    mul = torch.mul(nan_to_num, nan_to_num_1)  # f32[3, 4]  batch_pointwise.py:3  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 1.0)
    del nan_to_num, nan_to_num_1
    return [mul]


def declined(args):
    # x: f32[3, 4]
    # y: f32[3, 4]
    x, y = args
    args.clear()
    nan_to_num = torch.nan_to_num(x, 1.0)  # f32[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    nan_to_num_1 = torch.nan_to_num(y, 2.0)  # f32[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    mul = nan_to_num.mul_(nan_to_num_1)  # f32[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del nan_to_num, nan_to_num_1
    tanh = torch.tanh(x)  # f32[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del x
    mul_1 = mul.mul_(tanh)  # f32[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del mul, tanh
    double = aten._to_copy.default(y, dtype=torch.float64)  # f64[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del y
    tanh_1 = double.tanh_()  # f64[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del double
    mul_2 = tanh_1.mul_(mul_1)  # f64[3, 4]  batch_pointwise.py:7  return torch.nan_to_num(x, 1.0) * torch.nan_to_num(y, 2.0) …
    del mul_1, tanh_1
    return [mul_2]
