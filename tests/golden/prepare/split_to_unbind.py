# prepare: split_to_unbind
def f(x):
    return [y.squeeze(1).sin() for y in x.split(1, dim=1)]


def declined(x):
    return [y.squeeze().sin() for y in x.split(1, dim=0)]  # loses two dimensions


inputs = (torch.randn(2, 3, 1),)
# output
def f(args):
    # x: f32[2, 3, 1]
    x, = args
    args.clear()
    unbind = torch.unbind(x, 1)  # (f32[2, 1], f32[2, 1], f32[2, 1])  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    del x
    squeeze = unbind[0]  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    sin = torch.sin(squeeze)  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    del squeeze
    squeeze_1 = unbind[1]  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    sin_1 = torch.sin(squeeze_1)  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    del squeeze_1
    squeeze_2 = unbind[2]  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    del unbind
    sin_2 = torch.sin(squeeze_2)  # f32[2, 1]  split_to_unbind.py:3  return [y.squeeze(1).sin() for y in x.split(1, dim=1)]
    del squeeze_2
    return [sin, sin_1, sin_2]


def declined(args):
    # x: f32[2, 3, 1]
    x, = args
    args.clear()
    split = aten.split.Tensor(x, 1)  # (f32[1, 3, 1], f32[1, 3, 1])  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del x
    getitem = split[0]  # f32[1, 3, 1]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    split_1 = split[1]  # f32[1, 3, 1]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del split
    squeeze = torch.squeeze(getitem)  # f32[3]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del getitem
    sin = torch.sin(squeeze)  # f32[3]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del squeeze
    squeeze_1 = torch.squeeze(split_1)  # f32[3]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del split_1
    sin_1 = torch.sin(squeeze_1)  # f32[3]  split_to_unbind.py:7  return [y.squeeze().sin() for y in x.split(1, dim=0)]  # lo…
    del squeeze_1
    return [sin, sin_1]
