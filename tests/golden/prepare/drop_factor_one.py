# prepare: drop_factor_one
def f(x):
    return (x.sin() * 1).cos()


def declined(x):
    return (x.int() * 1.0).cos() * x  # the product is no integer


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_factor_one.py:3  return (x.sin() * 1).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_factor_one.py:3  return (x.sin() * 1).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    int_1 = aten._to_copy.default(x, dtype=torch.int32)  # i32[3, 3]  drop_factor_one.py:7  return (x.int() * 1.0).cos() * x  # the product is no integ…
    mul = torch.mul(int_1, 1.0)  # f32[3, 3]  drop_factor_one.py:7  return (x.int() * 1.0).cos() * x  # the product is no integ…
    del int_1
    cos = torch.cos(mul)  # f32[3, 3]  drop_factor_one.py:7  return (x.int() * 1.0).cos() * x  # the product is no integ…
    del mul
    mul_1 = cos.mul_(x)  # f32[3, 3]  drop_factor_one.py:7  return (x.int() * 1.0).cos() * x  # the product is no integ…
    del cos, x
    return [mul_1]
