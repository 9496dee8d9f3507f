# prepare: reassociate_right
def f(x, y, z):
    return x @ (y @ z)


def declined(x, y, z):
    w = y @ z
    return x @ w, w.sin()  # w is needed anyway


inputs = (torch.randn(1, 64), torch.randn(64, 64), torch.randn(64, 64))
# output
def f(args):
    # y: f32[64, 64]
    # z: f32[64, 64]
    # x: f32[1, 64]
    y, z, x = args
    args.clear()
    mm_2 = torch.mm(x, y)  # f32[1, 64]  reassociate_right.py:3  return x @ (y @ z)
    del x, y
    matmul_1 = torch.mm(mm_2, z)  # f32[1, 64]  reassociate_right.py:3  return x @ (y @ z)
    del mm_2, z
    return [matmul_1]


def declined(args):
    # y: f32[64, 64]
    # z: f32[64, 64]
    # x: f32[1, 64]
    y, z, x = args
    args.clear()
    w = torch.mm(y, z)  # f32[64, 64]  reassociate_right.py:7  w = y @ z
    del y, z
    matmul_1 = torch.mm(x, w)  # f32[1, 64]  reassociate_right.py:8  return x @ w, w.sin()  # w is needed anyway
    del x
    sin = torch.sin(w)  # f32[64, 64]  reassociate_right.py:8  return x @ w, w.sin()  # w is needed anyway
    del w
    return [matmul_1, sin]
