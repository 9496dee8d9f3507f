# prepare: gumbel_max
def f(x):
    with torch.no_grad():
        y = x.softmax(-1)
        e = torch.empty_like(y).exponential_()
        chosen = (y / e).argmax(-1, keepdim=True)
    return x.gather(-1, chosen)


def declined(x):
    with torch.no_grad():
        y = x.softmax(0)
        e = torch.empty_like(y).exponential_(1.0)
        chosen = (y / e).argmax(-1, keepdim=True)  # along another axis
    return x.gather(-1, chosen)


inputs = (torch.randn(4, 5),)
# output
def f(args):
    # x: f32[4, 5]
    x, = args
    args.clear()
    y = torch._softmax(x, -1, False)  # f32[4, 5]  gumbel_max.py:4  y = x.softmax(-1)
    empty_like = torch.empty_like(y, pin_memory=False)  # f32[4, 5]  gumbel_max.py:5  e = torch.empty_like(y).exponential_()
    del y
    e = aten.exponential.default(empty_like)  # f32[4, 5]  gumbel_max.py:5  e = torch.empty_like(y).exponential_()
    del empty_like
    log = torch.log(e)  # f32[4, 5]  gumbel_max.py:6  chosen = (y / e).argmax(-1, keepdim=True)
    del e
    sub = torch.sub(x, log)  # f32[4, 5]  gumbel_max.py:6  chosen = (y / e).argmax(-1, keepdim=True)
    del log
    chosen = torch.argmax(sub, -1, True)  # i64[4, 1]  gumbel_max.py:6  chosen = (y / e).argmax(-1, keepdim=True)
    del sub
    gather = torch.gather(x, -1, chosen)  # f32[4, 1]  gumbel_max.py:7  return x.gather(-1, chosen)
    del x, chosen
    return [gather]


def declined(args):
    # x: f32[4, 5]
    x, = args
    args.clear()
    y = torch._softmax(x, 0, False)  # f32[4, 5]  gumbel_max.py:12  y = x.softmax(0)
    empty_like = torch.empty_like(y, pin_memory=False)  # f32[4, 5]  gumbel_max.py:13  e = torch.empty_like(y).exponential_(1.0)
    e = aten.exponential.default(empty_like)  # f32[4, 5]  gumbel_max.py:13  e = torch.empty_like(y).exponential_(1.0)
    del empty_like
    truediv = torch.div(y, e)  # f32[4, 5]  gumbel_max.py:14  chosen = (y / e).argmax(-1, keepdim=True)  # along another …
    del y, e
    chosen = torch.argmax(truediv, -1, True)  # i64[4, 1]  gumbel_max.py:14  chosen = (y / e).argmax(-1, keepdim=True)  # along another …
    del truediv
    gather = torch.gather(x, -1, chosen)  # f32[4, 1]  gumbel_max.py:15  return x.gather(-1, chosen)
    del x, chosen
    return [gather]
