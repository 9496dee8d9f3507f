# prepare: fold_constants
def f(x):
    return x * (torch.ones(4) * 3 - 1)


def declined(x):
    return x * (torch.arange(4) * 3), torch.ones_like(x) * x


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    mul = torch.full([4], 3.0, dtype=torch.float32, device=device('cpu'), pin_memory=False)  # f32[4]  fold_constants.py:3  return x * (torch.ones(4) * 3 - 1)
    sub = mul.sub_(1)  # f32[4]  fold_constants.py:3  return x * (torch.ones(4) * 3 - 1)
    del mul
    mul_1 = sub.mul_(x)  # f32[4]  fold_constants.py:3  return x * (torch.ones(4) * 3 - 1)
    del x, sub
    return [mul_1]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    arange = torch.arange(4, device=device('cpu'), pin_memory=False)  # i64[4]  fold_constants.py:7  return x * (torch.arange(4) * 3), torch.ones_like(x) * x
    mul = torch.mul(arange, 3)  # i64[4]  fold_constants.py:7  return x * (torch.arange(4) * 3), torch.ones_like(x) * x
    del arange
    mul_1 = torch.mul(x, mul)  # f32[4]  fold_constants.py:7  return x * (torch.arange(4) * 3), torch.ones_like(x) * x
    del mul
    ones_like = torch.ones_like(x, pin_memory=False)  # f32[4]  fold_constants.py:7  return x * (torch.arange(4) * 3), torch.ones_like(x) * x
    mul_2 = torch.mul(ones_like, x)  # f32[4]  fold_constants.py:7  return x * (torch.arange(4) * 3), torch.ones_like(x) * x
    del ones_like, x
    return [mul_1, mul_2]
