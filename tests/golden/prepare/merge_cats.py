# prepare: merge_cats
def f(x, y):
    return torch.cat([torch.cat([x, y], 0), y], -2).cos()


def declined(x, y):
    return torch.cat([torch.cat([x, x], 0), y], 1).cos()  # along another dimension


inputs = (torch.randn(3, 3), torch.randn(6, 3))
# output
def f(args):
    # x: f32[3, 3]
    # y: f32[6, 3]
    x, y = args
    args.clear()
    cat_1 = torch.cat([x, y, y], -2)  # f32[15, 3]  merge_cats.py:3  return torch.cat([torch.cat([x, y], 0), y], -2).cos()
    del x, y
    cos = torch.cos(cat_1)  # f32[15, 3]  merge_cats.py:3  return torch.cat([torch.cat([x, y], 0), y], -2).cos()
    del cat_1
    return [cos]


def declined(args):
    # x: f32[3, 3]
    # y: f32[6, 3]
    x, y = args
    args.clear()
    cat = torch.cat([x, x])  # f32[6, 3]  merge_cats.py:7  return torch.cat([torch.cat([x, x], 0), y], 1).cos()  # alo…
    del x
    cat_1 = torch.cat([cat, y], 1)  # f32[6, 6]  merge_cats.py:7  return torch.cat([torch.cat([x, x], 0), y], 1).cos()  # alo…
    del cat, y
    cos = torch.cos(cat_1)  # f32[6, 6]  merge_cats.py:7  return torch.cat([torch.cat([x, x], 0), y], 1).cos()  # alo…
    del cat_1
    return [cos]
