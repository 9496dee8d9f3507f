# undefined: 1
from torch._higher_order_ops.map import map as map_rows


def f(x, v):
    return map_rows(lambda row: (row * v, row.sin()), x)


inputs = (torch.ones(4, 3), torch.ones(3))
# output
def backward(args):
    # nothing removed
    # g_getitem: f32[4, 3]
    # g_map_impl_1: f32[4, 3]
    # x: f32[4, 3]
    # v: f32[3]
    g_getitem, g_map_impl_1, x, v = args
    args.clear()
    def scan_body(args):
        # g_child_1: f32[3]
        # x_row: f32[3]
        # v: f32[3]
        g_child_1, x_row, v = args
        args.clear()
        mul_2 = torch.mul(g_child_1, x_row)  # f32[3]  grad_of child_1  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin()), x)
        del x_row
        mul_1 = torch.mul(g_child_1, v)  # f32[3]  grad_of child_1  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin()), x)
        del g_child_1, v
        return [mul_2, mul_1]
    scan = run_scan(scan_body, 4, [], [g_getitem, x], [v], totals=1, stacked=1, reverse=True)  # (f32[3], f32[4, 3])  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin()), x)
    del g_getitem, x, v
    item = scan[0]  # f32[3]  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin()), x)
    item_1 = scan[1]  # f32[4, 3]  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin()), x)
    del scan
    return [item_1, item]
