# prepare: merge_reshapes
def f(x):
    return x.sin().unsqueeze(0).reshape(9).reshape(1, 9).squeeze(0).cos()


def declined(x):
    return x.sin().t().unsqueeze(0).reshape(9).cos()  # the transpose is copied in between


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  merge_reshapes.py:3  return x.sin().unsqueeze(0).reshape(9).reshape(1, 9).squeez…
    del x
    squeeze = sin.reshape([9])  # f32[9]  merge_reshapes.py:3  return x.sin().unsqueeze(0).reshape(9).reshape(1, 9).squeez…
    del sin
    cos = torch.cos(squeeze)  # f32[9]  merge_reshapes.py:3  return x.sin().unsqueeze(0).reshape(9).reshape(1, 9).squeez…
    del squeeze
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del x
    t = torch.t(sin)  # f32[3, 3]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del sin
    unsqueeze = torch.unsqueeze(t, 0)  # f32[1, 3, 3]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del t
    clone = torch.clone(unsqueeze, memory_format=torch.contiguous_format)  # f32[1, 3, 3]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del unsqueeze
    reshape = clone.reshape([9])  # f32[9]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del clone
    cos = torch.cos(reshape)  # f32[9]  merge_reshapes.py:7  return x.sin().t().unsqueeze(0).reshape(9).cos()  # the tra…
    del reshape
    return [cos]
