# prepare: gelu_by_tanh
def f(x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x.pow(3))))


def declined(x):
    return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.pow(3))))


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul_3 = aten.gelu.default(x, approximate='tanh')  # f32[4]  gelu_by_tanh.py:3  return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + …
    del x
    return [mul_3]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = torch.mul(x, 0.5)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    pow_1 = torch.pow(x, 3)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    mul_1 = pow_1.mul_(0.044715)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del pow_1
    add = mul_1.add_(x)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del x, mul_1
    mul_2 = add.mul_(0.8)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del add
    tanh = mul_2.tanh_()  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del mul_2
    add_1 = tanh.add_(1)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del tanh
    mul_3 = mul.mul_(add_1)  # f32[4]  gelu_by_tanh.py:7  return 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x.po…
    del mul, add_1
    return [mul_3]
