"""Where a joint graph is cut: more freely where much less is saved then, else as usual; gradients are the same."""

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from tapeless import torch_internals
from tapeless.background import cut


def bent(x):
    return x * x.sigmoid()


def energy(x, w, v):
    return bent(bent(x @ w) @ v).sum()


def slope(x, w, v):
    (found,) = torch.autograd.grad(energy(x, w, v), x, create_graph=True)
    return found.square().sum()


def joint_of(loss):
    """The function of [inputs, cotangent] to [loss, gradients]."""

    def joint(*args):
        with torch.enable_grad():
            *inputs, g = (arg.detach().requires_grad_() for arg in args)
            out = loss(*inputs)
            return [out.detach(), *torch.autograd.grad(out, inputs, g)]

    return joint


def arguments(rows):
    torch.manual_seed(0)
    shapes = ((rows, 32), (32, 64), (64, 64), ())
    return [torch.randn(shape, dtype=torch.float64) for shape in shapes]


def parts(loss, rows):
    """The usual cut, and the one that is taken."""
    mode = torch_internals.fake_mode_of([])
    traced = make_fx(joint_of(loss))(*arguments(rows))
    fakes = [mode.from_tensor(argument) for argument in arguments(rows)]
    joint = torch_internals.decompose_for_inductor(fx.Interpreter(traced).run, fakes)
    return torch_internals.min_cut(joint, 3, 1, [1, 2]), cut.cut(joint, 3, 1, [1, 2])


def run(parts, args):
    """Loss and gradients, by forward and backward."""
    forward, backward = parts
    outs = forward(*args[:3])
    known = dict(zip((str(node) for node in forward.graph.output_node().args[0]), outs, strict=True))
    known["tangents_1"] = args[3]
    return [outs[0], *backward(*(known[node.name] for node in backward.graph.find_nodes(op="placeholder")))]


def saved(cuts):
    return [cut._saved(forward, 1) for forward, _ in cuts]


def test_what_an_inner_gradient_reads_again_is_not_saved():
    usual, taken = parts(slope, 8192)
    before, after = saved((usual, taken))

    assert after <= cut.PART * before
    torch.testing.assert_close(joint_of(slope)(*arguments(8192)), run(taken, arguments(8192)))
    torch.testing.assert_close(run(usual, arguments(8192)), run(taken, arguments(8192)))


def test_a_forward_that_goes_one_way_is_cut_as_usual():
    usual, taken = parts(energy, 8192)

    assert str(usual[0].graph) == str(taken[0].graph)
    assert str(usual[1].graph) == str(taken[1].graph)
    torch.testing.assert_close(joint_of(energy)(*arguments(8192)), run(taken, arguments(8192)))


def test_what_stays_in_caches_is_cut_as_usual():
    usual, taken = parts(slope, 64)

    assert saved((usual, usual)) == saved((usual, taken))


def test_sizes_that_vary_are_cut_as_usual():
    mode, sizes = torch_internals.symbolic_sizes({"s0": 8192})
    with mode:
        fakes = [torch.empty(sizes["s0"], 64), torch.empty(64, 64), torch.empty(sizes["s0"], 64)]

    def joint(x, w, g):
        y = (x @ w).sin()
        return [y, (y * g) @ w.t(), x.t() @ (y * g)]

    graph = torch_internals.decompose_for_inductor(joint, fakes)
    usual, taken = torch_internals.min_cut(graph, 2, 1, [1]), cut.cut(graph, 2, 1, [1])

    assert str(usual[0].graph) == str(taken[0].graph)
