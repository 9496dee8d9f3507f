def f(x):
    return x.sin()


inputs = (torch.randn(3),)
# output
def backward(args):
    # g_sin: f32[3]
    # x: f32[3]
    g_sin, x = args
    args.clear()
    if g_sin is not None:
        cos = torch.cos(x)  # f32[3]  grad_of sin  single_output_needs_no_fill.py:2  return x.sin()
        mul = torch.mul(g_sin, cos)  # f32[3]  grad_of sin  single_output_needs_no_fill.py:2  return x.sin()
        del cos
    else:
        mul = None
    del x, g_sin
    return [mul]
