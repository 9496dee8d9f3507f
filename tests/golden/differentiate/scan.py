from torch._higher_order_ops import scan


def f(x, h, w):
    def body(h, row):
        h = torch.tanh(h * w + row)
        return h, h.clone()

    return scan(body, h, x)


inputs = (torch.ones(4, 3), torch.ones(3), torch.ones(3))
# output
def backward(args):
    # g_getitem: f32[3]
    # g_scan_1: f32[4, 3]
    # w: f32[3]
    # h_stack: f32[4, 3]
    # carry_stack: f32[4, 3]
    g_getitem, g_scan_1, w, h_stack, carry_stack = args
    args.clear()
    def scan_2_body(args):
        # g_h: f32[3]
        # g_child_2: f32[3]
        # carry: f32[3]
        # h: f32[3]
        # w: f32[3]
        g_h, g_child_2, carry, h, w = args
        args.clear()
        g_h_1 = torch.add(g_h, g_child_2)  # f32[3]  total of h  scan.py:6  h = torch.tanh(h * w + row)
        del g_h, g_child_2
        tanh_backward = aten.tanh_backward.default(g_h_1, h)  # f32[3]  grad_of h  scan.py:6  h = torch.tanh(h * w + row)
        del g_h_1, h
        mul_1 = torch.mul(tanh_backward, w)  # f32[3]  grad_of mul  scan.py:6  h = torch.tanh(h * w + row)
        del w
        mul_2 = torch.mul(tanh_backward, carry)  # f32[3]  grad_of mul  scan.py:6  h = torch.tanh(h * w + row)
        del carry
        return [mul_1, mul_2, tanh_backward]
    scan_2 = run_scan(scan_2_body, 4, [g_getitem], [g_scan_1, carry_stack, h_stack], [w], totals=1, stacked=1, reverse=True)  # (f32[3], f32[3], f32[4, 3])  grad_of scan  scan.py:9  return scan(body, h, x)
    del g_getitem, g_scan_1, carry_stack, h_stack, w
    item = scan_2[0]  # f32[3]  grad_of scan  scan.py:9  return scan(body, h, x)
    item_1 = scan_2[1]  # f32[3]  grad_of scan  scan.py:9  return scan(body, h, x)
    item_2 = scan_2[2]  # f32[4, 3]  grad_of scan  scan.py:9  return scan(body, h, x)
    del scan_2
    return [item_2, item, item_1]
