# prepare: drop_relu_of_nonnegative
def f(x):
    return F.relu(F.relu(x)).cos()


def declined(x):
    return F.relu(torch.sqrt(x)).cos()  # at 0 the derivative of the root is infinite


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    relu = torch.relu(x)  # f32[3, 3]  drop_relu_of_nonnegative.py:3  return F.relu(F.relu(x)).cos()
    del x
    cos = torch.cos(relu)  # f32[3, 3]  drop_relu_of_nonnegative.py:3  return F.relu(F.relu(x)).cos()
    del relu
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sqrt = torch.sqrt(x)  # f32[3, 3]  drop_relu_of_nonnegative.py:7  return F.relu(torch.sqrt(x)).cos()  # at 0 the derivative o…
    del x
    relu = sqrt.relu_()  # f32[3, 3]  drop_relu_of_nonnegative.py:7  return F.relu(torch.sqrt(x)).cos()  # at 0 the derivative o…
    del sqrt
    cos = torch.cos(relu)  # f32[3, 3]  drop_relu_of_nonnegative.py:7  return F.relu(torch.sqrt(x)).cos()  # at 0 the derivative o…
    del relu
    return [cos]
