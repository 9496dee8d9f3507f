# prepare: cross_entropy
def f(x, target):
    return -torch.log_softmax(x, 1).gather(1, target[:, None]).squeeze(1).mean()


def declined(x, target):
    columns = -torch.log_softmax(x, 0).gather(1, target[:, None]).mean()
    return columns, -torch.log_softmax(x, 1)[torch.arange(4), target].mean()


inputs = (torch.randn(4, 6).requires_grad_(), torch.tensor([0, 2, 5, 1]))
# output
def f(args):
    # x: f32[4, 6]
    # target: i64[4]
    x, target = args
    args.clear()
    log_softmax = torch._log_softmax(x, 1, False)  # f32[4, 6]  cross_entropy.py:3  return -torch.log_softmax(x, 1).gather(1, target[:, None]).…
    del x
    nll_loss_forward = aten.nll_loss_forward.default(log_softmax, target, None, 1, -4611686018427387904)  # (f32[], f32[])  cross_entropy.py:3  return -torch.log_softmax(x, 1).gather(1, target[:, None]).…
    del log_softmax, target
    neg = nll_loss_forward[0]  # f32[]  cross_entropy.py:3  return -torch.log_softmax(x, 1).gather(1, target[:, None]).…
    del nll_loss_forward
    return [neg]


def declined(args):
    # x: f32[4, 6]
    # target: i64[4]
    x, target = args
    args.clear()
    log_softmax = torch._log_softmax(x, 0, False)  # f32[4, 6]  cross_entropy.py:7  columns = -torch.log_softmax(x, 0).gather(1, target[:, None…
    getitem = torch.unsqueeze(target, 1)  # i64[4, 1]  cross_entropy.py:7  columns = -torch.log_softmax(x, 0).gather(1, target[:, None…
    gather = torch.gather(log_softmax, 1, getitem)  # f32[4, 1]  cross_entropy.py:7  columns = -torch.log_softmax(x, 0).gather(1, target[:, None…
    del log_softmax, getitem
    mean = torch.mean(gather)  # f32[]  cross_entropy.py:7  columns = -torch.log_softmax(x, 0).gather(1, target[:, None…
    del gather
    columns = torch.neg(mean)  # f32[]  cross_entropy.py:7  columns = -torch.log_softmax(x, 0).gather(1, target[:, None…
    del mean
    log_softmax_1 = torch._log_softmax(x, 1, False)  # f32[4, 6]  cross_entropy.py:8  return columns, -torch.log_softmax(x, 1)[torch.arange(4), t…
    del x
    arange = torch.arange(4, device=device('cpu'), pin_memory=False)  # i64[4]  cross_entropy.py:8  return columns, -torch.log_softmax(x, 1)[torch.arange(4), t…
    getitem_1 = aten.index.Tensor(log_softmax_1, [arange, target])  # f32[4]  cross_entropy.py:8  return columns, -torch.log_softmax(x, 1)[torch.arange(4), t…
    del log_softmax_1, arange, target
    mean_1 = torch.mean(getitem_1)  # f32[]  cross_entropy.py:8  return columns, -torch.log_softmax(x, 1)[torch.arange(4), t…
    del getitem_1
    neg_1 = torch.neg(mean_1)  # f32[]  cross_entropy.py:8  return columns, -torch.log_softmax(x, 1)[torch.arange(4), t…
    del mean_1
    return [columns, neg_1]
