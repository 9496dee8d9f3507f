# prepare: drop_neutral_truth
def f(x):
    return x * ((x > 0) & torch.ones((), dtype=torch.bool))


def declined(x):
    return x * ((x > 0) & torch.zeros((), dtype=torch.bool))


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    gt = torch.gt(x, 0)  # bool[3, 3]  drop_neutral_truth.py:3  return x * ((x > 0) & torch.ones((), dtype=torch.bool))
    mul = torch.mul(x, gt)  # f32[3, 3]  drop_neutral_truth.py:3  return x * ((x > 0) & torch.ones((), dtype=torch.bool))
    del x, gt
    return [mul]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    gt = torch.gt(x, 0)  # bool[3, 3]  drop_neutral_truth.py:7  return x * ((x > 0) & torch.zeros((), dtype=torch.bool))
    zeros = torch.zeros([], dtype=torch.bool, device=device('cpu'), pin_memory=False)  # bool[]  drop_neutral_truth.py:7  return x * ((x > 0) & torch.zeros((), dtype=torch.bool))
    and_1 = torch.bitwise_and(gt, zeros)  # bool[3, 3]  drop_neutral_truth.py:7  return x * ((x > 0) & torch.zeros((), dtype=torch.bool))
    del gt, zeros
    mul = torch.mul(x, and_1)  # f32[3, 3]  drop_neutral_truth.py:7  return x * ((x > 0) & torch.zeros((), dtype=torch.bool))
    del x, and_1
    return [mul]
