from torch._higher_order_ops import while_loop


def f(x, w):
    return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp() * w,), (x,))[0]


inputs = (torch.ones(3), torch.ones(3))
# output
def backward(args):
    # g_while_loop_1: f32[3]
    # w: f32[3]
    # rounds: int u1
    # exp_stack: f32[u1, 3]
    g_while_loop_1, w, rounds, exp_stack = args
    args.clear()
    def scan_body(args):
        # g_child: f32[3]
        # exp: f32[3]
        # w: f32[3]
        g_child, exp, w = args
        args.clear()
        mul = torch.mul(g_child, w)  # f32[3]  grad_of child  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
        del w
        mul_2 = mul.mul_(exp)  # f32[3]  grad_of exp  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
        del mul
        mul_1 = torch.mul(g_child, exp)  # f32[3]  grad_of child  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
        del g_child, exp
        return [mul_2, mul_1]
    scan = run_scan(scan_body, rounds, [g_while_loop_1], [exp_stack], [w], totals=1, reverse=True)  # (f32[3], f32[3])  grad_of while_loop  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
    del rounds, g_while_loop_1, exp_stack, w
    item = scan[0]  # f32[3]  grad_of while_loop  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
    item_1 = scan[1]  # f32[3]  grad_of while_loop  while_loop.py:5  return while_loop(lambda v: v.sum() < 9, lambda v: (v.exp()…
    del scan
    return [item, item_1]
