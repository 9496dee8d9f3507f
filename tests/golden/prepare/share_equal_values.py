# prepare: share_equal_values
def f(x):
    return x.sin() * 2, x.sin() * 3


def declined(x):
    with torch.no_grad():
        y = x.sin()
    return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; returned twice


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  share_equal_values.py:3  return x.sin() * 2, x.sin() * 3
    del x
    mul = torch.mul(sin, 2)  # f32[3, 3]  share_equal_values.py:3  return x.sin() * 2, x.sin() * 3
    mul_1 = sin.mul_(3)  # f32[3, 3]  share_equal_values.py:3  return x.sin() * 2, x.sin() * 3
    del sin
    return [mul, mul_1]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    y = torch.sin(x)  # f32[3, 3]  share_equal_values.py:8  y = x.sin()
    mul = y.mul_(2)  # f32[3, 3]  share_equal_values.py:9  return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; ret…
    del y
    sin_1 = torch.sin(x)  # f32[3, 3]  share_equal_values.py:9  return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; ret…
    mul_1 = sin_1.mul_(3)  # f32[3, 3]  share_equal_values.py:9  return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; ret…
    del sin_1
    cos = torch.cos(x)  # f32[3, 3]  share_equal_values.py:9  return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; ret…
    cos_1 = torch.cos(x)  # f32[3, 3]  share_equal_values.py:9  return y * 2, x.sin() * 3, x.cos(), x.cos()  # cut off; ret…
    del x
    return [mul, mul_1, cos, cos_1]
