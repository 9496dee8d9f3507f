@torch.library.custom_op("golden::running", mutates_args=())
def running(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.cumsum(0) for part in x.split(lengths.tolist())])


running.register_fake(lambda x, lengths: torch.empty_like(x))
running.register_autograd(
    lambda ctx, g: (torch.cat([p.flip(0).cumsum(0).flip(0) for p in g.split(ctx.lengths.tolist())]), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "lengths", inputs[1]),
)


def f(x, lengths):
    return running(x.sin(), lengths)


inputs = (torch.ones(5), torch.tensor([2, 3]))
# output
def backward(args):
    # g_running_default: f32[5]
    # x: f32[5]
    # lengths: i64[2]
    # sin: f32[5]
    # running_default: f32[5]
    g_running_default, x, lengths, sin, running_default = args
    args.clear()
    autograd_vjp = AutogradVjp(torch.ops.golden.running.default, (0,))([g_running_default], running_default, [sin, lengths], {})  # (f32[5])  grad_of running_default  opaque_backward.py:14  return running(x.sin(), lengths)
    del g_running_default, running_default, sin, lengths
    item = autograd_vjp[0]  # f32[5]  grad_of running_default  opaque_backward.py:14  return running(x.sin(), lengths)
    del autograd_vjp
    zeros_if_undefined = torch.zeros([5], dtype=torch.float32, device=device('cpu')) if item is None else item  # f32[5]  grad_of running_default  opaque_backward.py:14  return running(x.sin(), lengths)
    del item
    cos = torch.cos(x)  # f32[5]  grad_of sin  opaque_backward.py:14  return running(x.sin(), lengths)
    del x
    mul = cos.mul_(zeros_if_undefined)  # f32[5]  grad_of sin  opaque_backward.py:14  return running(x.sin(), lengths)
    del zeros_if_undefined, cos
    return [mul]
