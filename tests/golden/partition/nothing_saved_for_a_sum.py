def f(x, y):
    return (x + y).sum(dim=0)


inputs = (torch.randn(2, 3), torch.randn(3))
# output
def forward(args):
    # x: f32[2, 3]
    # y: f32[3]
    x, y = args
    args.clear()
    add = torch.add(x, y)  # f32[2, 3]  nothing_saved_for_a_sum.py:2  return (x + y).sum(dim=0)
    del x, y
    sum_1 = torch.sum(add, [0])  # f32[3]  nothing_saved_for_a_sum.py:2  return (x + y).sum(dim=0)
    del add
    return [sum_1]


def backward(args):
    # g_sum_1: f32[3]
    g_sum_1, = args
    args.clear()
    unsqueeze = torch.unsqueeze(g_sum_1, 0)  # f32[1, 3]  grad_of sum_1  nothing_saved_for_a_sum.py:2  return (x + y).sum(dim=0)
    del g_sum_1
    expand = unsqueeze.expand([2, 3])  # f32[2, 3]  grad_of sum_1  nothing_saved_for_a_sum.py:2  return (x + y).sum(dim=0)
    del unsqueeze
    sum_2 = torch.sum(expand, [0])  # f32[3]  grad_of add  nothing_saved_for_a_sum.py:2  return (x + y).sum(dim=0)
    return [expand, sum_2]
