# prepare: drop_idle_view
def f(x):
    return x.sin().expand(3, 3).reshape(3, 3).cos()


def declined(x):
    return x.sin().t().cos(), x.sin()[1:].cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_idle_view.py:3  return x.sin().expand(3, 3).reshape(3, 3).cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_idle_view.py:3  return x.sin().expand(3, 3).reshape(3, 3).cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    t = torch.t(sin)  # f32[3, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    del sin
    cos = torch.cos(t)  # f32[3, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    del t
    sin_1 = torch.sin(x)  # f32[3, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    del x
    getitem = aten.slice.Tensor(sin_1, 0, 1, 9223372036854775807)  # f32[2, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    del sin_1
    cos_1 = torch.cos(getitem)  # f32[2, 3]  drop_idle_view.py:7  return x.sin().t().cos(), x.sin()[1:].cos()
    del getitem
    return [cos, cos_1]
