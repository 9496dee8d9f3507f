def f(x):
    y = x.sin()
    return y * y.cos()


inputs = (torch.randn(3),)
# output
def backward(args):
    # g_mul: f32[3]
    # x: f32[3]
    # y: f32[3]
    # cos: f32[3]
    g_mul, x, y, cos = args
    args.clear()
    mul_1 = torch.mul(g_mul, cos)  # f32[3]  grad_of mul  used_twice.py:3  return y * y.cos()
    del cos
    mul_2 = torch.mul(g_mul, y)  # f32[3]  grad_of mul  used_twice.py:3  return y * y.cos()
    del g_mul
    sin = torch.sin(y)  # f32[3]  grad_of cos  used_twice.py:3  return y * y.cos()
    del y
    neg = torch.neg(sin)  # f32[3]  grad_of cos  used_twice.py:3  return y * y.cos()
    del sin
    mul_3 = torch.mul(mul_2, neg)  # f32[3]  grad_of cos  used_twice.py:3  return y * y.cos()
    del mul_2, neg
    g_y = torch.add(mul_1, mul_3)  # f32[3]  total of y  used_twice.py:2  y = x.sin()
    del mul_1, mul_3
    cos_1 = torch.cos(x)  # f32[3]  grad_of y  used_twice.py:2  y = x.sin()
    del x
    mul_4 = torch.mul(g_y, cos_1)  # f32[3]  grad_of y  used_twice.py:2  y = x.sin()
    del g_y, cos_1
    return [mul_4]
