# prepare: quantize_before_view!
import torch.ao.quantization.fx._decomposed


def f(x):
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    return x * 2, quantize(x.detach().reshape(9), 0.1, 0, 0, 255, torch.uint8)


def declined(x):
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    return x * 2, quantize(x.detach().sin(), 0.1, 0, 0, 255, torch.uint8)


inputs = (torch.randn(3, 3),)
# output
def f(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    mul = torch.mul(x, 2)  # f32[3, 3]  quantize_before_view.py:7  return x * 2, quantize(x.detach().reshape(9), 0.1, 0, 0, 25…
    detach = torch.detach(x)  # f32[3, 3]  quantize_before_view.py:7  return x * 2, quantize(x.detach().reshape(9), 0.1, 0, 0, 25…
    del x
    quantize_per_tensor_1 = torch.ops.quantized_decomposed.quantize_per_tensor.default(detach, 0.1, 0, 0, 255, torch.uint8)  # u8[3, 3]  quantize_before_view.py:7  return x * 2, quantize(x.detach().reshape(9), 0.1, 0, 0, 25…
    del detach
    quantize_per_tensor = quantize_per_tensor_1.reshape([9])  # u8[9]  quantize_before_view.py:7  return x * 2, quantize(x.detach().reshape(9), 0.1, 0, 0, 25…
    del quantize_per_tensor_1
    return [mul, quantize_per_tensor]


def declined(args):
    # x: f32[3, 3]
    x, = args
    args.clear()
    mul = torch.mul(x, 2)  # f32[3, 3]  quantize_before_view.py:12  return x * 2, quantize(x.detach().sin(), 0.1, 0, 0, 255, to…
    detach = torch.detach(x)  # f32[3, 3]  quantize_before_view.py:12  return x * 2, quantize(x.detach().sin(), 0.1, 0, 0, 255, to…
    del x
    sin = torch.sin(detach)  # f32[3, 3]  quantize_before_view.py:12  return x * 2, quantize(x.detach().sin(), 0.1, 0, 0, 255, to…
    del detach
    quantize_per_tensor = torch.ops.quantized_decomposed.quantize_per_tensor.default(sin, 0.1, 0, 0, 255, torch.uint8)  # u8[3, 3]  quantize_before_view.py:12  return x * 2, quantize(x.detach().sin(), 0.1, 0, 0, 255, to…
    del sin
    return [mul, quantize_per_tensor]
