def f(x):
    values, places = x.max(dim=1)
    return values, places


inputs = (torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0]]),)
# output
def backward(args):
    # g_getitem: f32[2]
    # max_2: i64[2]
    g_getitem, max_2 = args
    args.clear()
    unsqueeze = torch.unsqueeze(g_getitem, 1)  # f32[2, 1]  grad_of max_1  max_picks_its_index.py:2  values, places = x.max(dim=1)
    del g_getitem
    unsqueeze_1 = torch.unsqueeze(max_2, 1)  # i64[2, 1]  grad_of max_1  max_picks_its_index.py:2  values, places = x.max(dim=1)
    del max_2
    new_zeros = unsqueeze.new_zeros([2, 3], pin_memory=False)  # f32[2, 3]  grad_of max_1  max_picks_its_index.py:2  values, places = x.max(dim=1)
    scatter = torch.scatter(new_zeros, 1, unsqueeze_1, unsqueeze)  # f32[2, 3]  grad_of max_1  max_picks_its_index.py:2  values, places = x.max(dim=1)
    del new_zeros, unsqueeze_1, unsqueeze
    return [scatter]
