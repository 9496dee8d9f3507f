def f(x, w):
    hidden = x @ w
    if x.shape[0] > 2:
        hidden = hidden.relu()
    return {"scores": hidden.softmax(-1), "norm": hidden.norm()}


inputs = (torch.randn(4, 3), torch.randn(3, 2))
# output
def program(args):
    # x: f32[4, 3]
    # w: f32[3, 2]
    x, w = args
    args.clear()
    hidden = torch.mm(x, w)  # f32[4, 2]  names_and_branches.py:2  hidden = x @ w
    del x, w
    hidden_1 = hidden.relu_()  # f32[4, 2]  names_and_branches.py:4  hidden = hidden.relu()
    del hidden
    softmax = torch._softmax(hidden_1, -1, False)  # f32[4, 2]  names_and_branches.py:5  return {"scores": hidden.softmax(-1), "norm": hidden.norm()}
    norm = aten.linalg_vector_norm.default(hidden_1)  # f32[]  names_and_branches.py:5  return {"scores": hidden.softmax(-1), "norm": hidden.norm()}
    del hidden_1
    return [softmax, norm]
