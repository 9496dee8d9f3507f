# prepare: stack_to_unsqueeze
def f(x):
    return torch.stack([x.sin()], dim=1).cos()


def declined(x):
    return torch.stack([x.sin(), x], dim=1).cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  stack_to_unsqueeze.py:3  return torch.stack([x.sin()], dim=1).cos()
    del x
    stack = torch.unsqueeze(sin, 1)  # f32[3, 1, 3]  stack_to_unsqueeze.py:3  return torch.stack([x.sin()], dim=1).cos()
    del sin
    cos = torch.cos(stack)  # f32[3, 1, 3]  stack_to_unsqueeze.py:3  return torch.stack([x.sin()], dim=1).cos()
    del stack
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  stack_to_unsqueeze.py:7  return torch.stack([x.sin(), x], dim=1).cos()
    stack = torch.stack([sin, x], 1)  # f32[3, 2, 3]  stack_to_unsqueeze.py:7  return torch.stack([x.sin(), x], dim=1).cos()
    del sin, x
    cos = torch.cos(stack)  # f32[3, 2, 3]  stack_to_unsqueeze.py:7  return torch.stack([x.sin(), x], dim=1).cos()
    del stack
    return [cos]
