# undefined: 1
from torch._higher_order_ops.map import map as map_rows


def f(x, v):
    return map_rows(lambda row: (row * v, row.sin() * v), x)


inputs = (torch.ones(4, 3), torch.ones(3))
# output
def backward(args):
    # 48 bytes less to keep
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
        mul_4 = torch.mul(g_child_1, x_row)  # f32[3]  grad_of child_1  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin() * v), x)
        del x_row
        mul_3 = torch.mul(g_child_1, v)  # f32[3]  grad_of child_1  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin() * v), x)
        del g_child_1, v
        return [mul_4, mul_3]
    scan = run_scan(scan_body, 4, [], [g_getitem, x], [v], totals=1, stacked=1, reverse=True)  # (f32[3], f32[4, 3])  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin() * v), x)
    del g_getitem, x, v
    item = scan[0]  # f32[3]  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin() * v), x)
    item_1 = scan[1]  # f32[4, 3]  grad_of map_impl  scan_with_a_missing_cotangent.py:6  return map_rows(lambda row: (row * v, row.sin() * v), x)
    del scan
    return [item_1, item]
