# prepare: log_of_softmax
def f(x):
    return F.softmax(x, -1).log().cos()


def declined(x):
    return F.softmax(x, -1).log2().cos()


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    log = torch._log_softmax(x, -1, False)  # f32[3, 3]  log_of_softmax.py:3  return F.softmax(x, -1).log().cos()
    del x
    cos = torch.cos(log)  # f32[3, 3]  log_of_softmax.py:3  return F.softmax(x, -1).log().cos()
    del log
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    softmax = torch._softmax(x, -1, False)  # f32[3, 3]  log_of_softmax.py:7  return F.softmax(x, -1).log2().cos()
    del x
    log2 = torch.log2(softmax)  # f32[3, 3]  log_of_softmax.py:7  return F.softmax(x, -1).log2().cos()
    del softmax
    cos = torch.cos(log2)  # f32[3, 3]  log_of_softmax.py:7  return F.softmax(x, -1).log2().cos()
    del log2
    return [cos]
