# prepare: thin_product_to_pointwise!
def f(x, w):
    return torch.einsum('abc,abcd->abd', x, w)


def declined(x, w):
    return torch.einsum('abc,adce->abde', x, w)


inputs = (torch.randn(2, 3, 4), torch.randn(2, 3, 4, 5))
# output
def f(args):
    # x: f32[2, 3, 4]
    # w: f32[2, 3, 4, 5]
    x, w = args
    args.clear()
    unsqueeze = torch.unsqueeze(x, 3)  # f32[2, 3, 4, 1]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del x
    permute = torch.permute(unsqueeze, [0, 1, 3, 2])  # f32[2, 3, 1, 4]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del unsqueeze
    permute_1 = torch.permute(w, [0, 1, 3, 2])  # f32[2, 3, 5, 4]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del w
    permute_2 = torch.permute(permute, [0, 1, 3, 2])  # f32[2, 3, 4, 1]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del permute
    view = permute_2.reshape([6, 1, 4])  # f32[6, 1, 4]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del permute_2
    permute_3 = torch.permute(permute_1, [0, 1, 3, 2])  # f32[2, 3, 4, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del permute_1
    view_1 = permute_3.reshape([6, 4, 5])  # f32[6, 4, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del permute_3
    transpose = torch.transpose(view, 1, 2)  # f32[6, 4, 1]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del view
    mul = torch.mul(transpose, view_1)  # f32[6, 4, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del transpose, view_1
    bmm = torch.sum(mul, [1], True)  # f32[6, 1, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del mul
    view_2 = bmm.reshape([2, 3, 1, 5])  # f32[2, 3, 1, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del bmm
    permute_4 = torch.permute(view_2, [0, 1, 3, 2])  # f32[2, 3, 5, 1]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del view_2
    einsum = permute_4.reshape([2, 3, 5])  # f32[2, 3, 5]  thin_product_to_pointwise.py:3  return torch.einsum('abc,abcd->abd', x, w)
    del permute_4
    return [einsum]


def declined(args):
    # x: f32[2, 3, 4]
    # w: f32[2, 3, 4, 5]
    x, w = args
    args.clear()
    unsqueeze = torch.unsqueeze(x, 3)  # f32[2, 3, 4, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del x
    unsqueeze_1 = torch.unsqueeze(unsqueeze, 4)  # f32[2, 3, 4, 1, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del unsqueeze
    permute = torch.permute(unsqueeze_1, [0, 1, 3, 4, 2])  # f32[2, 3, 1, 1, 4]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del unsqueeze_1
    unsqueeze_2 = torch.unsqueeze(w, 4)  # f32[2, 3, 4, 5, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del w
    permute_1 = torch.permute(unsqueeze_2, [0, 4, 1, 3, 2])  # f32[2, 1, 3, 5, 4]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del unsqueeze_2
    permute_2 = torch.permute(permute, [0, 1, 4, 2, 3])  # f32[2, 3, 4, 1, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del permute
    view = permute_2.reshape([2, 3, 4])  # f32[2, 3, 4]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del permute_2
    permute_3 = torch.permute(permute_1, [0, 4, 2, 3, 1])  # f32[2, 4, 3, 5, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del permute_1
    clone = torch.clone(permute_3, memory_format=torch.contiguous_format)  # f32[2, 4, 3, 5, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del permute_3
    _unsafe_view = clone.reshape([2, 4, 15])  # f32[2, 4, 15]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del clone
    bmm = torch.bmm(view, _unsafe_view)  # f32[2, 3, 15]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del view, _unsafe_view
    view_1 = bmm.reshape([2, 3, 1, 3, 5])  # f32[2, 3, 1, 3, 5]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del bmm
    permute_4 = torch.permute(view_1, [0, 1, 3, 4, 2])  # f32[2, 3, 3, 5, 1]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del view_1
    einsum = permute_4.reshape([2, 3, 3, 5])  # f32[2, 3, 3, 5]  thin_product_to_pointwise.py:7  return torch.einsum('abc,adce->abde', x, w)
    del permute_4
    return [einsum]
