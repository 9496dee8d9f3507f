# prepare: scale_after_reduction
def f(x):
    return (x.sin() * 3).mean(0)


def declined(x):
    return (x.sin() * x).mean(0)


inputs = (torch.randn(64, 64),)
# output
def f(args):
    # x: f32[64, 64]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[64, 64]  scale_after_reduction.py:3  return (x.sin() * 3).mean(0)
    del x
    mean_1 = torch.mean(sin, [0])  # f32[64]  scale_after_reduction.py:3  return (x.sin() * 3).mean(0)
    del sin
    mean = mean_1.mul_(3)  # f32[64]  scale_after_reduction.py:3  return (x.sin() * 3).mean(0)
    del mean_1
    return [mean]


def declined(args):
    # x: f32[64, 64]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[64, 64]  scale_after_reduction.py:7  return (x.sin() * x).mean(0)
    mul = sin.mul_(x)  # f32[64, 64]  scale_after_reduction.py:7  return (x.sin() * x).mean(0)
    del sin, x
    mean = torch.mean(mul, [0])  # f32[64]  scale_after_reduction.py:7  return (x.sin() * x).mean(0)
    del mul
    return [mean]
