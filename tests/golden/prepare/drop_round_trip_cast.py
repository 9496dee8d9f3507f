# prepare: drop_round_trip_cast
def f(x):
    return x.sin().double().float().cos()


def declined(x):
    return x.sin().bfloat16().float().cos()  # narrower: it rounds


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_round_trip_cast.py:3  return x.sin().double().float().cos()
    del x
    cos = torch.cos(sin)  # f32[3, 3]  drop_round_trip_cast.py:3  return x.sin().double().float().cos()
    del sin
    return [cos]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    sin = torch.sin(x)  # f32[3, 3]  drop_round_trip_cast.py:7  return x.sin().bfloat16().float().cos()  # narrower: it rou…
    del x
    bfloat16 = aten._to_copy.default(sin, dtype=torch.bfloat16)  # bf16[3, 3]  drop_round_trip_cast.py:7  return x.sin().bfloat16().float().cos()  # narrower: it rou…
    del sin
    float_1 = aten._to_copy.default(bfloat16, dtype=torch.float32)  # f32[3, 3]  drop_round_trip_cast.py:7  return x.sin().bfloat16().float().cos()  # narrower: it rou…
    del bfloat16
    cos = torch.cos(float_1)  # f32[3, 3]  drop_round_trip_cast.py:7  return x.sin().bfloat16().float().cos()  # narrower: it rou…
    del float_1
    return [cos]
