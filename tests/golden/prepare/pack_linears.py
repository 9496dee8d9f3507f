# prepare: pack_linears
def f(x, w, b):
    return F.linear(x, w, b).relu() @ w


def declined(x, w, b):
    few = F.linear(x[:2], w, b)  # a product with few rows reads the weight once, in whatever order
    return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]


inputs = (torch.randn(8, 400), torch.nn.Parameter(torch.randn(400, 400) / 20), torch.nn.Parameter(torch.randn(400)))
# output
def f(args):
    # x: f32[8, 400]
    # w: f32[400, 400]
    # b: f32[400]
    x, w, b = args
    args.clear()
    pack_matrix = kernels.pack_matrix(w, 8)  # f32[400, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    pack_bias = kernels.pack_bias(b)  # f32[400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del b
    linear = kernels.multiply_packed(x, pack_matrix, pack_bias)  # f32[8, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del x, pack_matrix, pack_bias
    relu = linear.relu_()  # f32[8, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del linear
    t_1 = torch.t(w)  # f32[400, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del w
    pack_matrix_1 = kernels.pack_matrix(t_1, 8)  # f32[400, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del t_1
    matmul = kernels.multiply_packed(relu, pack_matrix_1, None)  # f32[8, 400]  pack_linears.py:3  return F.linear(x, w, b).relu() @ w
    del relu, pack_matrix_1
    return [matmul]


def declined(args):
    # x: f32[8, 400]
    # w: f32[400, 400]
    # b: f32[400]
    x, w, b = args
    args.clear()
    getitem = aten.slice.Tensor(x, 0, 0, 2)  # f32[2, 400]  pack_linears.py:7  few = F.linear(x[:2], w, b)  # a product with few rows read…
    t = torch.t(w)  # f32[400, 400]  pack_linears.py:7  few = F.linear(x[:2], w, b)  # a product with few rows read…
    few = torch.addmm(b, getitem, t)  # f32[2, 400]  pack_linears.py:7  few = F.linear(x[:2], w, b)  # a product with few rows read…
    del b, getitem, t
    double = aten._to_copy.default(few, dtype=torch.float64)  # f64[2, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del few
    double_1 = aten._to_copy.default(w, dtype=torch.float64)  # f64[400, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    t_1 = torch.t(double_1)  # f64[400, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del double_1
    linear_1 = torch.mm(double, t_1)  # f64[2, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del double, t_1
    getitem_1 = aten.slice.Tensor(x, 1, 0, 4)  # f32[8, 4]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del x
    getitem_2 = aten.slice.Tensor(w, 0, 0, 4)  # f32[4, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del w
    matmul = torch.mm(getitem_1, getitem_2)  # f32[8, 400]  pack_linears.py:8  return F.linear(few.double(), w.double()), x[:, :4] @ w[:4]
    del getitem_1, getitem_2
    return [linear_1, matmul]
