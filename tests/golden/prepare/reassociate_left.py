# prepare: reassociate_left
def f(x, y, z):
    return x @ y @ z


def declined(x, y, z):
    return z @ z @ z  # no order is cheaper


inputs = (torch.randn(64, 2), torch.randn(2, 64), torch.randn(64, 64))
# output
def f(args):
    # x: f32[64, 2]
    # y: f32[2, 64]
    # z: f32[64, 64]
    x, y, z = args
    args.clear()
    mm_2 = torch.mm(y, z)  # f32[2, 64]  reassociate_left.py:3  return x @ y @ z
    del y, z
    matmul_1 = torch.mm(x, mm_2)  # f32[64, 64]  reassociate_left.py:3  return x @ y @ z
    del x, mm_2
    return [matmul_1]


def declined(args):
    # z: f32[64, 64]
    z, = args
    args.clear()
    matmul = torch.mm(z, z)  # f32[64, 64]  reassociate_left.py:7  return z @ z @ z  # no order is cheaper
    matmul_1 = torch.mm(matmul, z)  # f32[64, 64]  reassociate_left.py:7  return z @ z @ z  # no order is cheaper
    del matmul, z
    return [matmul_1]
