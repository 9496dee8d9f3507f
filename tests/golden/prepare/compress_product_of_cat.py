# prepare: compress_product_of_cat
def f(u, v, w, y):
    return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) @ y[:256]


def declined(u, v, w, y):
    return torch.cat([u @ v, w], 1) @ (y @ y.t())


inputs = (torch.randn(256, 2), torch.randn(2, 256), torch.randn(256, 256), torch.randn(512, 8))
# output
def f(args):
    # u: f32[256, 2]
    # v: f32[2, 256]
    # w: f32[256, 256]
    # y: f32[512, 8]
    u, v, w, y = args
    args.clear()
    split_with_sizes = torch.split_with_sizes(y, [256, 256])  # (f32[256, 8], f32[256, 8])  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    item = split_with_sizes[0]  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    item_1 = split_with_sizes[1]  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del split_with_sizes
    mm_4 = torch.mm(v, item)  # f32[2, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del item
    mm_5 = torch.mm(u, mm_4)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del mm_4
    mm_6 = torch.mm(w, item_1)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del item_1
    matmul_1 = mm_5.add_(mm_6)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del mm_5, mm_6
    getitem = aten.slice.Tensor(y, 0, 0, 256)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del y
    mm_7 = torch.mm(v, getitem)  # f32[2, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del v
    mm_8 = torch.mm(u, mm_7)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del u, mm_7
    mm_9 = torch.mm(w, getitem)  # f32[256, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del w, getitem
    matmul_3 = torch.cat([mm_8, mm_9])  # f32[512, 8]  compress_product_of_cat.py:3  return torch.cat([u @ v, w], 1) @ y, torch.cat([u @ v, w]) …
    del mm_8, mm_9
    return [matmul_1, matmul_3]


def declined(args):
    # u: f32[256, 2]
    # v: f32[2, 256]
    # w: f32[256, 256]
    # y: f32[512, 8]
    u, v, w, y = args
    args.clear()
    matmul = torch.mm(u, v)  # f32[256, 256]  compress_product_of_cat.py:7  return torch.cat([u @ v, w], 1) @ (y @ y.t())
    del u, v
    cat = torch.cat([matmul, w], 1)  # f32[256, 512]  compress_product_of_cat.py:7  return torch.cat([u @ v, w], 1) @ (y @ y.t())
    del matmul, w
    t = torch.t(y)  # f32[8, 512]  compress_product_of_cat.py:7  return torch.cat([u @ v, w], 1) @ (y @ y.t())
    matmul_1 = torch.mm(y, t)  # f32[512, 512]  compress_product_of_cat.py:7  return torch.cat([u @ v, w], 1) @ (y @ y.t())
    del y, t
    matmul_2 = torch.mm(cat, matmul_1)  # f32[256, 512]  compress_product_of_cat.py:7  return torch.cat([u @ v, w], 1) @ (y @ y.t())
    del cat, matmul_1
    return [matmul_2]
