def f(x):
    return torch.utils.checkpoint.checkpoint(lambda y: y.exp().sin(), x, use_reentrant=False)


inputs = (torch.randn(3),)
# output
def forward(args):
    # x: f32[3]
    x, = args
    args.clear()
    exp = torch.exp(x)  # f32[3]  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    del x
    sin = torch.sin(exp)  # f32[3]  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    del exp
    return [sin]


def backward(args):
    # g_sin: f32[3]
    # x: f32[3]
    g_sin, x = args
    args.clear()
    exp = torch.exp(x)  # f32[3]  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    del x
    cos = torch.cos(exp)  # f32[3]  grad_of sin  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    mul = cos.mul_(g_sin)  # f32[3]  grad_of sin  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    del g_sin, cos
    mul_1 = mul.mul_(exp)  # f32[3]  grad_of exp  checkpoint_recomputes.py:2  return torch.utils.checkpoint.checkpoint(lambda y: y.exp().…
    del mul, exp
    return [mul_1]
