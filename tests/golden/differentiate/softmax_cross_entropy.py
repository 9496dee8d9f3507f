def f(logits, targets):
    return F.cross_entropy(logits, targets)


inputs = (torch.randn(4, 3), torch.tensor([0, 2, 1, 1]))
# output
def backward(args):
    # g_cross_entropy: f32[]
    # targets: i64[4]
    # _log_softmax: f32[4, 3]
    # getitem: f32[]
    g_cross_entropy, targets, _log_softmax, getitem = args
    args.clear()
    nll_loss_backward = aten.nll_loss_backward.default(g_cross_entropy, _log_softmax, targets, None, 1, -100, getitem)  # f32[4, 3]  grad_of nll_loss_forward  softmax_cross_entropy.py:2  return F.cross_entropy(logits, targets)
    del g_cross_entropy, targets, getitem
    _log_softmax_backward_data = torch._log_softmax_backward_data(nll_loss_backward, _log_softmax, 1, torch.float32)  # f32[4, 3]  grad_of _log_softmax  softmax_cross_entropy.py:2  return F.cross_entropy(logits, targets)
    del nll_loss_backward, _log_softmax
    return [_log_softmax_backward_data]
