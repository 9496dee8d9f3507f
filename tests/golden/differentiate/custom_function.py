class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() < 1)


def f(x):
    return Clipped.apply(x * 2)


inputs = (torch.tensor([0.2, 0.4, -0.9]),)
# output
def backward(args):
    # g_autograd_function_apply: f32[3]
    # arg: f32[3]
    g_autograd_function_apply, arg = args
    args.clear()
    abs_1 = torch.abs(arg)  # f32[3]  grad_of custom_function  custom_function.py:14  return Clipped.apply(x * 2)
    del arg
    lt = torch.lt(abs_1, 1)  # bool[3]  grad_of custom_function  custom_function.py:14  return Clipped.apply(x * 2)
    del abs_1
    mul = torch.mul(g_autograd_function_apply, lt)  # f32[3]  grad_of custom_function  custom_function.py:14  return Clipped.apply(x * 2)
    del g_autograd_function_apply, lt
    mul_1 = mul.mul_(2)  # f32[3]  grad_of arg  custom_function.py:14  return Clipped.apply(x * 2)
    del mul
    return [mul_1]
