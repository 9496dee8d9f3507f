# prepare: silu
def f(x):
    return x * torch.sigmoid(x)


def declined(x):
    return x * torch.sigmoid(1.702 * x)


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = aten.silu.default(x)  # f32[4]  silu.py:3  return x * torch.sigmoid(x)
    del x
    return [mul]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = torch.mul(x, 1.702)  # f32[4]  silu.py:7  return x * torch.sigmoid(1.702 * x)
    sigmoid = mul.sigmoid_()  # f32[4]  silu.py:7  return x * torch.sigmoid(1.702 * x)
    del mul
    mul_1 = sigmoid.mul_(x)  # f32[4]  silu.py:7  return x * torch.sigmoid(1.702 * x)
    del x, sigmoid
    return [mul_1]
