def f(x):
    return F.dropout(x, p=0.5, training=True)


inputs = (torch.randn(8),)
# output
def backward(args):
    # g_dropout: f32[8]
    # getitem: bool[8]
    g_dropout, getitem = args
    args.clear()
    native_dropout_backward = aten.native_dropout_backward.default(g_dropout, getitem, 2.0)  # f32[8]  grad_of native_dropout  dropout.py:2  return F.dropout(x, p=0.5, training=True)
    del g_dropout, getitem
    return [native_dropout_backward]
