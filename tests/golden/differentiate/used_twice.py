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
    neg = sin.neg_()  # f32[3]  grad_of cos  used_twice.py:3  return y * y.cos()
    del sin
    mul_3 = mul_2.mul_(neg)  # f32[3]  grad_of cos  used_twice.py:3  return y * y.cos()
    del mul_2, neg
    g_y = mul_1.add_(mul_3)  # f32[3]  total of y  used_twice.py:2  y = x.sin()
    del mul_1, mul_3
    cos_1 = torch.cos(x)  # f32[3]  grad_of y  used_twice.py:2  y = x.sin()
    del x
    mul_4 = g_y.mul_(cos_1)  # f32[3]  grad_of y  used_twice.py:2  y = x.sin()
    del g_y, cos_1
    return [mul_4]
