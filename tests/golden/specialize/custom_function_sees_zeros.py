# undefined: 1
class Pair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g + 2 * h


def f(x):
    return Pair.apply(x)


inputs = (torch.randn(3),)
# output
def backward(args):
    # nothing removed
    # g_getitem: f32[3]
    # g_autograd_function_apply: f32[3]
    g_getitem, g_autograd_function_apply = args
    args.clear()
    full = torch.full([3], 0, dtype=torch.float32, device=device('cpu'), pin_memory=False)  # f32[3]  grad_of custom_function  custom_function_sees_zeros.py:13  return Pair.apply(x)
    mul = full.mul_(2)  # f32[3]  grad_of custom_function  custom_function_sees_zeros.py:13  return Pair.apply(x)
    del full
    add = mul.add_(g_getitem)  # f32[3]  grad_of custom_function  custom_function_sees_zeros.py:13  return Pair.apply(x)
    del g_getitem, mul
    return [add]
