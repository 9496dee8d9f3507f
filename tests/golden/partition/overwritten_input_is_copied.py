def f(x, w):
    y = x * w
    x.zero_()
    return y


inputs = (torch.randn(3), torch.randn(3, requires_grad=True))
# output
def forward(args):
    # x: f32[3]
    # w: f32[3]
    x, w = args
    args.clear()
    clone_default = aten.clone.default(x)  # f32[3]
    y = aten.mul.Tensor(x, w)  # f32[3]  overwritten_input_is_copied.py:2  y = x * w
    del w
    zero = aten.zero.default(x)  # f32[3]  overwritten_input_is_copied.py:3  x.zero_()
    del x
    return [zero, y, clone_default]


def backward(args):
    # g_y: f32[3]
    # clone_default: f32[3]
    g_y, clone_default = args
    args.clear()
    mul_1 = aten.mul.Tensor(g_y, clone_default)  # f32[3]  grad_of y  overwritten_input_is_copied.py:2  y = x * w
    del g_y, clone_default
    return [mul_1]
