# prepare: drop_nan_to_num_of_finite
def f(x):
    return torch.nan_to_num(torch.nan_to_num(x, 1.0).relu()).sin()


def declined(x):
    return torch.nan_to_num(torch.nan_to_num(x, float("inf")).relu()).sin(), torch.nan_to_num(x.relu())


inputs = (torch.randn(4),)
# output
def f(args):
    # x: f32[4]
    x, = args
    args.clear()
    nan_to_num = torch.nan_to_num(x, 1.0)  # f32[4]  drop_nan_to_num_of_finite.py:3  return torch.nan_to_num(torch.nan_to_num(x, 1.0).relu()).si…
    del x
    relu = nan_to_num.relu_()  # f32[4]  drop_nan_to_num_of_finite.py:3  return torch.nan_to_num(torch.nan_to_num(x, 1.0).relu()).si…
    del nan_to_num
    sin = torch.sin(relu)  # f32[4]  drop_nan_to_num_of_finite.py:3  return torch.nan_to_num(torch.nan_to_num(x, 1.0).relu()).si…
    del relu
    return [sin]


def declined(args):
    # x: f32[4]
    x, = args
    args.clear()
    nan_to_num = torch.nan_to_num(x, inf)  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    relu = nan_to_num.relu_()  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    del nan_to_num
    nan_to_num_1 = torch.nan_to_num(relu)  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    del relu
    sin = torch.sin(nan_to_num_1)  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    del nan_to_num_1
    relu_1 = torch.relu(x)  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    del x
    nan_to_num_2 = torch.nan_to_num(relu_1)  # f32[4]  drop_nan_to_num_of_finite.py:7  return torch.nan_to_num(torch.nan_to_num(x, float("inf")).r…
    del relu_1
    return [sin, nan_to_num_2]
