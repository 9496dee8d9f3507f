# prepare: merge_clamps
def f(x):
    return x.clamp(min=-1.0).clamp(max=0.5).clamp(-2.0, 2.0)


def declined(x):
    return x.clamp(min=1.0).clamp(max=0.5)  # nothing lies in both


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    clamp_2 = torch.clamp(x, -1.0, 0.5)  # f32[3, 3]  merge_clamps.py:3  return x.clamp(min=-1.0).clamp(max=0.5).clamp(-2.0, 2.0)
    del x
    return [clamp_2]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    clamp = torch.clamp(x, 1.0)  # f32[3, 3]  merge_clamps.py:7  return x.clamp(min=1.0).clamp(max=0.5)  # nothing lies in b…
    del x
    clamp_1 = torch.clamp(clamp, None, 0.5)  # f32[3, 3]  merge_clamps.py:7  return x.clamp(min=1.0).clamp(max=0.5)  # nothing lies in b…
    del clamp
    return [clamp_1]
