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


def test_an_operand_is_made_again_of_what_is_read_anyway():
    """Of both products the derivative of `bent` reads the results, of which the operand of the next one is made."""
    usual, taken = parts(energy, 8192)
    before, after = saved((usual, taken))

    assert after == before - 8192 * 64 * 8
    torch.testing.assert_close(joint_of(energy)(*arguments(8192)), run(taken, arguments(8192)))
    torch.testing.assert_close(run(usual, arguments(8192)), run(taken, arguments(8192)), rtol=0, atol=0)


def shifted(x, w, v):
    y = ((x @ w).sin().view(-1, 64, 64) + v).flatten(0, 1)
    return (y.t() @ y).square().sum()


def test_a_small_input_that_nobody_else_reads_is_copied():
    """Whoever changes it before the backward may do so in eager."""
    usual, taken = parts(shifted, 8192)
    before, after = saved((usual, taken))
    forward, backward = taken
    copy = next(n for n in forward.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default))

    assert after == before - 8192 * 64 * 8 + 64 * 64 * 8
    assert copy.name in [node.name for node in backward.graph.find_nodes(op="placeholder")]
    torch.testing.assert_close(joint_of(shifted)(*arguments(8192)), run(taken, arguments(8192)))


def linear_in_many_steps(x, w, v):
    h = x @ w
    y = h
    for step in range(6):
        y = (y * 0.5).round() + h.abs() * step
    return (y @ v).square().sum() + h.square().sum()


def test_what_takes_many_steps_is_saved():
    usual, taken = parts(linear_in_many_steps, 8192)

    assert saved((usual, usual)) == saved((usual, taken))


def noisy(x, w, v):
    return (torch.native_dropout(bent(x @ w), 0.5, True)[0] @ v).square().sum()


def test_what_is_drawn_is_not_drawn_again():
    _, (forward, backward) = parts(noisy, 8192)
    found = []
    for call in (joint_of(noisy), lambda *args: run((forward, backward), args)):
        torch.manual_seed(0)
        found.append((call(*arguments(8192)), torch.rand(())))

    torch.testing.assert_close(*found)
    assert not any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in backward.graph.nodes)


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
