# prepare: reduce_before_expand
def f(x):
    return x.sin().expand(4096, 3, 3).sum([0, 1])


def declined(x):
    return x.sin().expand(64, 3, 3).sum(2)  # not the repeated dimension


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  reduce_before_expand.py:3  return x.sin().expand(4096, 3, 3).sum([0, 1])
    del x
    view = sin.reshape([1, 3, 3])  # f32[1, 3, 3]  reduce_before_expand.py:3  return x.sin().expand(4096, 3, 3).sum([0, 1])
    del sin
    sum_2 = torch.sum(view, [1], True)  # f32[1, 1, 3]  reduce_before_expand.py:3  return x.sin().expand(4096, 3, 3).sum([0, 1])
    del view
    mul = sum_2.mul_(4096)  # f32[1, 1, 3]  reduce_before_expand.py:3  return x.sin().expand(4096, 3, 3).sum([0, 1])
    del sum_2
    sum_1 = mul.reshape([3])  # f32[3]  reduce_before_expand.py:3  return x.sin().expand(4096, 3, 3).sum([0, 1])
    del mul
    return [sum_1]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  reduce_before_expand.py:7  return x.sin().expand(64, 3, 3).sum(2)  # not the repeated …
    del x
    expand = sin.expand([64, 3, 3])  # f32[64, 3, 3]  reduce_before_expand.py:7  return x.sin().expand(64, 3, 3).sum(2)  # not the repeated …
    del sin
    sum_1 = torch.sum(expand, [2])  # f32[64, 3]  reduce_before_expand.py:7  return x.sin().expand(64, 3, 3).sum(2)  # not the repeated …
    del expand
    return [sum_1]
