def f(x, y):
    return x * y


inputs = (torch.randn(3, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64))
# output
def backward(args):
    # g_mul: c64[3]
    # x: c64[3]
    # y: c64[3]
    g_mul, x, y = args
    args.clear()
    _conj = torch._conj(y)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del y
    clone = torch.clone(_conj)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del _conj
    mul_1 = clone.mul_(g_mul)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del clone
    _conj_1 = torch._conj(x)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del x
    clone_1 = torch.clone(_conj_1)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del _conj_1
    mul_2 = clone_1.mul_(g_mul)  # c64[3]  grad_of mul  complex_product_conjugates.py:2  return x * y
    del g_mul, clone_1
    return [mul_1, mul_2]
