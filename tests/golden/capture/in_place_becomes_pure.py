def f(x, w):
    x.mul_(w)
    return x.sum(0)


inputs = (torch.randn(2, 3), torch.randn(3, requires_grad=True))
# output
def program(args):
    # x: f32[2, 3]
    # w: f32[3]
    x, w = args
    args.clear()
    clone = torch.clone(x)  # f32[2, 3]
    del x
    mul = clone.mul_(w)  # f32[2, 3]  in_place_becomes_pure.py:2  x.mul_(w)
    del clone, w
    sum_1 = torch.sum(mul, [0])  # f32[3]  in_place_becomes_pure.py:3  return x.sum(0)
    return [mul, sum_1]
