def f(x, y):
    return x * y


inputs = (torch.randn(3), torch.randn(3, dtype=torch.float64))
# output
def backward(args):
    # g_mul: f64[3]
    # x: f32[3]
    # y: f64[3]
    g_mul, x, y = args
    args.clear()
    mul_1 = torch.mul(g_mul, y)  # f64[3]  grad_of mul  mixed_dtypes_cast_back.py:2  return x * y
    del y
    mul_2 = torch.mul(g_mul, x)  # f64[3]  grad_of mul  mixed_dtypes_cast_back.py:2  return x * y
    del g_mul, x
    _to_copy = aten._to_copy.default(mul_1, dtype=torch.float32)  # f32[3]  grad_of mul  mixed_dtypes_cast_back.py:2  return x * y
    del mul_1
    return [_to_copy, mul_2]
