# prepare: power_to_root
def f(x):
    return x.pow(0.5), x**-0.5, torch.pow(x, -1)


def declined(x):
    return x.pow(1.5), x.pow(-2), x.pow(x)


inputs = (torch.rand(4) + 1,)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    pow_1 = torch.sqrt(x)  # f32[4]  power_to_root.py:3  return x.pow(0.5), x**-0.5, torch.pow(x, -1)
    pow_2 = torch.rsqrt(x)  # f32[4]  power_to_root.py:3  return x.pow(0.5), x**-0.5, torch.pow(x, -1)
    pow_3 = torch.reciprocal(x)  # f32[4]  power_to_root.py:3  return x.pow(0.5), x**-0.5, torch.pow(x, -1)
    del x
    return [pow_1, pow_2, pow_3]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    pow_1 = torch.pow(x, 1.5)  # f32[4]  power_to_root.py:7  return x.pow(1.5), x.pow(-2), x.pow(x)
    pow_2 = torch.pow(x, -2)  # f32[4]  power_to_root.py:7  return x.pow(1.5), x.pow(-2), x.pow(x)
    pow_3 = torch.pow(x, x)  # f32[4]  power_to_root.py:7  return x.pow(1.5), x.pow(-2), x.pow(x)
    del x
    return [pow_1, pow_2, pow_3]
