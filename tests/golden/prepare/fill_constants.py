# prepare: fill_constants
def f(x):
    return torch.where(x > 0, x, torch.tensor(-3.5))


def declined(x):
    return x * torch.tensor([1.0, 2.0])


inputs = (torch.randn(2),)
# output
def f(args):
    # x: f32[2]
    x, = args
    args.clear()
    gt = torch.gt(x, 0)  # bool[2]  fill_constants.py:3  return torch.where(x > 0, x, torch.tensor(-3.5))
    tensor = torch.full([], -3.5, dtype=torch.float32, device=device('cpu'), pin_memory=False)  # f32[]  fill_constants.py:3  return torch.where(x > 0, x, torch.tensor(-3.5))
    where = torch.where(gt, x, tensor)  # f32[2]  fill_constants.py:3  return torch.where(x > 0, x, torch.tensor(-3.5))
    del gt, x, tensor
    return [where]


def declined(args):
    # x: f32[2]
    x, = args
    args.clear()
    _tensor_constant0 = constant__tensor_constant0  # f32[2]  fill_constants.py:7  return x * torch.tensor([1.0, 2.0])
    tensor = aten.lift_fresh_copy.default(_tensor_constant0)  # f32[2]  fill_constants.py:7  return x * torch.tensor([1.0, 2.0])
    del _tensor_constant0
    mul = torch.mul(x, tensor)  # f32[2]  fill_constants.py:7  return x * torch.tensor([1.0, 2.0])
    del x, tensor
    return [mul]
