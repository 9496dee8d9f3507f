"""Programs that once had wrong gradients: unseen writes, in-place text, replays of trimmed forwards."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from comparing import BACKEND, Cube, assert_values, case, check, complexes, constant, integers, leaf, module, table
from tapeless.runtime.program import Program

double = torch.float64
A, V = (3, 3), (3,)


def non_leaf():
    return leaf(3, 3) * 1.5


# --- writes that autograd does not see --------------------------------------------------------------------------------


def write(how, after=lambda y, z: y * y * z):
    """A program that writes to an intermediate `y` by `how`, then uses it."""

    def program(x, z):
        y = x * 2
        how(y, z)
        return after(y, z)

    return program


def under_no_grad(how):
    def run(y, z):
        with torch.no_grad():
            how(y, z)

    return run


def through_view(y, z):
    v = y.view(-1)
    v.mul_(2)


def zero_row(y, z):
    y[0] = 0


def select(y, z):
    y[y > 0] = 0


def of_a_view(x, z):
    y = (x * 2).view(3, 3)
    v = y[1]
    with torch.no_grad():
        v.mul_(3)
        y[0].zero_()
    return v * z, y * y


def tracked_between(x, z):
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
    y.mul_(z)
    with torch.no_grad():
        y.add_(1)
    return y * y


def detached_alias(x, z):
    y = x * 2
    v = y.detach()
    v.mul_(3)
    return y * x * v


def to_an_input(x, z):
    with torch.no_grad():
        x.clamp_(-0.5, 0.5)
    return x * x * z


def to_an_input_that_is_returned(x, z):
    with torch.no_grad():
        x.add_(z)
    return x


def in_a_checkpoint(x, w):
    def body(a, b):
        c = a * b
        with torch.no_grad():
            c.mul_(2)
        return c * c.detach() * b

    return checkpoint(body, x, w, use_reentrant=False)


def of_another_shape(x, z):
    y = x * 2
    v = y.T[2]
    v.mul_(3)
    y.unsqueeze_(0)
    return y * z.detach()


def in_place_detach(x):
    y = x + 3
    z = y.clone() * x
    y.detach_()
    return y * x + z


def checkpoint_under_no_grad(x, w):
    with torch.no_grad():
        y = checkpoint(lambda a, b: (a @ b).sin(), x, w, use_reentrant=False)
    return y * x.sum()


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(5, 3, dtype=double))

    def forward(self, x):
        with torch.no_grad():
            nearest = torch.cdist(x, self.rows).argmin(1)
            self.rows.mul_(0.9)
        chosen = self.rows[nearest]
        return x + (chosen - x).detach(), F.mse_loss(chosen, x)


@table(
    case("no_grad", write(under_no_grad(lambda y, z: y.mul_(3))), A, A),
    case("no_grad, copy_", write(under_no_grad(lambda y, z: y.copy_(z))), A, A),
    case("no_grad, setitem", write(under_no_grad(zero_row)), A, A),
    case("no_grad, mask", write(under_no_grad(select)), A, A),
    case("no_grad, out=", write(under_no_grad(lambda y, z: torch.add(y, z, out=y))), A, A),
    case("no_grad, view", write(under_no_grad(through_view)), A, A),
    case("no_grad, returned", write(under_no_grad(lambda y, z: y.add_(z)), lambda y, z: y), A, A),
    case("data", write(lambda y, z: y.data.mul_(3)), A, A),
    case("detach", write(lambda y, z: y.detach().mul_(3)), A, A),
    case("detached alias", detached_alias, A, A),
    case("of a view", of_a_view, (9,), V),
    case("to a base that gets another shape", of_another_shape, A, A),
    case("tracked between", tracked_between, A, A),
    case("to a leaf", to_an_input, A, A),
    case("to a non-leaf", to_an_input, non_leaf, A),
    case("to a returned leaf", to_an_input_that_is_returned, A, A),
    case("to a returned non-leaf", to_an_input_that_is_returned, non_leaf, A),
    case("in a checkpoint", in_a_checkpoint, A, A),
    case("dynamic", write(under_no_grad(lambda y, z: y.mul_(3))), A, A, compile={"dynamic": True}),
    case("embedding with max_norm", lambda w, i: F.embedding(i, w, max_norm=1.0) * w.sum(), (5, 3), integers(5, 4)),
    module("codebook", Codebook, (4, 3)),
)
def test_writes_that_autograd_does_not_see(case):
    check(case)


@table(
    case("data", lambda x: x.data * x, V),
    case("data of an intermediate", lambda x: (x * 2).data * x, V),
    case("detach_", in_place_detach, V),
    case("checkpoint under no_grad", checkpoint_under_no_grad, A, A),
    case("under vmap", lambda x, w: torch.vmap(lambda t: (t.detach() * t * w).sum())(x), A, V),
)
def test_cut_gradients(case):
    check(case)


# --- running ----------------------------------------------------------------------------------------------------------


def dropouts_out_of_order(x, y):
    h = F.dropout(x, 0.5)
    return h, F.dropout(h * 2, 0.5), F.dropout(y, 0.5)


def sum_with_itself(u, w):
    x = u + 1
    return torch.addmm(x, x, w)


def custom_in_a_checkpoint(x):
    return checkpoint(lambda a: Cube.apply(a.sin()) * a, x, use_reentrant=False)


def conjugated(t):
    return torch.randn_like(t).conj()


@table(
    case("a product with the operand it may overwrite", sum_with_itself, constant(3, 3), constant(3, 3)),
    case("random numbers in order across stages", dropouts_out_of_order, (20,), (20,)),
    case("custom function in a checkpoint", custom_in_a_checkpoint, V),
    case(
        "conjugated cotangent",
        lambda z: torch.view_as_complex(torch.view_as_real(z) * 2),
        complexes(3, dtype=torch.complex128),
        cotangent=conjugated,
    ),
)
def test_running(case):
    check(case)


# --- trimmed forwards -------------------------------------------------------------------------------------------------


def pair(x, y):
    return x.exp() * y.cos(), x.sin() * y * y


def trained_on_the_first(call):
    """Backwards from the first output alone, until the forward saves only what these need."""
    for _ in range(3):
        x, y = leaf(3), leaf(3)
        call(x, y)[0].sum().backward()
    return call


def related_arguments(call):
    """An unexpected second-order backward: one argument was computed from the other."""
    x = leaf(3)
    _, b = trained_on_the_first(call)(x, x * 2)
    (g,) = torch.autograd.grad(b.square().sum(), x, create_graph=True)
    return [g, *torch.autograd.grad(g.square().sum(), x)]


def expected_twice_unexpected_once(call):
    """Cotangents arrive at the temporaries (second order) and at an output that was not expected, at once."""
    x, y = leaf(3), leaf(3)
    a, b = trained_on_the_first(call)(x, y)
    (g,) = torch.autograd.grad(a.sum(), x, create_graph=True)
    return [g, *torch.autograd.grad(g.square().sum() + b.sum(), [x, y])]


def same_as_eager(observe):
    def test():
        found = []
        for call in (pair, torch.compile(pair, backend=BACKEND, fullgraph=True)):
            torch.manual_seed(0)
            found.append(observe(call))
        assert_values(*found, "gradient")

    test.__doc__ = observe.__doc__
    return test


test_related_arguments = same_as_eager(related_arguments)
test_expected_twice_unexpected_once = same_as_eager(expected_twice_unexpected_once)


def test_variants_are_told_apart_though_one_takes_the_address_of_another():
    """What is kept by variant holds on to the variant: an `id` may be given again."""
    program = Program.__new__(Program)
    keys = []
    program._backwards = type("Kept", (dict,), {"find": lambda self, key, build: keys.append(key)})()
    program._is_worth_waiting = lambda variant, wanted: False
    program._latest_backward, program._contests = (None, None), None
    variant = object()
    Program.backward(program, variant, (True,), (True,))
    assert keys[0][0] is variant


def written_and_hidden(x, w):
    y = x * w
    with torch.no_grad():
        y.mul_(2)
        z = x.sin()
    return y * y * z, y.detach() * x


def test_forward_mode_sees_what_no_grad_hides():
    x, t, w = leaf(3), leaf(3).detach(), leaf(3)
    found = []
    for call in (written_and_hidden, torch.compile(written_and_hidden, backend=BACKEND, fullgraph=True)):
        with forward_ad.dual_level():
            outs = call(forward_ad.make_dual(x, t), w)
            found.append([forward_ad.unpack_dual(out).tangent for out in outs])
    assert_values(*found, "tangent")
