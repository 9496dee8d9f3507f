def f(x):
    y = x.clone()
    y[0] = 1.0
    return y.sin()


inputs = (torch.randn(3, 2),)
# output
constant__tensor_constant0 = torch.tensor(1.0, dtype=torch.float32)

def program(args):
    # x: f32[3, 2]
    x, = args
    args.clear()
    y = torch.clone(x)  # f32[3, 2]  write_through_a_view.py:2  y = x.clone()
    del x
    _tensor_constant0 = constant__tensor_constant0  # f32[]  write_through_a_view.py:3  y[0] = 1.0
    lift_fresh_copy = aten.lift_fresh_copy.default(_tensor_constant0)  # f32[]  write_through_a_view.py:3  y[0] = 1.0
    del _tensor_constant0
    select = torch.select(y, 0, 0)  # f32[2]  write_through_a_view.py:3  y[0] = 1.0
    fill = torch.fill(select, lift_fresh_copy)  # f32[2]  write_through_a_view.py:3  y[0] = 1.0
    del select, lift_fresh_copy
    setitem = torch.select_scatter(y, fill, 0, 0)  # f32[3, 2]  write_through_a_view.py:3  y[0] = 1.0
    del y, fill
    sin = torch.sin(setitem)  # f32[3, 2]  write_through_a_view.py:4  return y.sin()
    del setitem
    return [sin]
