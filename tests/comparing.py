"""Run one program in eager and compiled, from equal inputs, and compare everything a user can observe.

A case is a line of data: a name, a program, and how to make its inputs. An input that is a tuple of ints is a float64
leaf of that shape which requires grad; a callable is called to make the value; anything else is passed as it is.
Eager is the specification: no expected value is written down.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

BACKEND = os.environ.get("TAPELESS_TEST_BACKEND", "tapeless")

TOLERANCE = {torch.float32: 1e-4, torch.complex64: 1e-4, torch.bfloat16: 4e-2, torch.float16: 4e-3}


@dataclass(frozen=True)
class Case:
    """A program with its inputs. `build` makes a new program (a module) each time; otherwise `program` is used."""

    name: str
    program: Callable
    inputs: tuple
    build: bool = False
    kwargs: dict = field(default_factory=dict)
    cotangent: Callable = torch.randn_like
    steps: int = 2
    views: bool = False  # the outputs' `_is_view` and strides are part of what the case is about
    compile: dict = field(default_factory=dict)

    def make(self) -> Callable:
        return self.program() if self.build else self.program


def case(name: str, program: Callable, *inputs: Any, **settings: Any) -> Case:
    return Case(name, program, inputs, **settings)


def module(name: str, build: Callable, *inputs: Any, **settings: Any) -> Case:
    return Case(name, build, inputs, build=True, **settings)


def table(*cases: Case) -> Any:
    """The decorator that runs a test once per case."""
    names = [c.name for c in cases]
    assert len(names) == len(set(names)), f"two cases share a name: {sorted(names)}"
    return pytest.mark.parametrize("case", cases, ids=names)


# --- inputs -----------------------------------------------------------------------------------------------------------


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def constant(*shape: int, dtype: torch.dtype = torch.float64) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, dtype=dtype)


def positive(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.rand(shape, dtype=torch.float64).add(0.5).requires_grad_()


def integers(high: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(high, shape)


def values(*numbers: Any, dtype: torch.dtype = torch.float64, grad: bool = True) -> Callable[[], Tensor]:
    return lambda: torch.tensor(numbers, dtype=dtype).requires_grad_(grad)


def complexes(*shape: int, dtype: torch.dtype = torch.complex64) -> Callable[[], Tensor]:
    return lambda: leaf(*shape, dtype=dtype)


def made(spec: Any) -> Any:
    if isinstance(spec, tuple) and all(type(n) is int for n in spec):
        return leaf(*spec)
    return spec() if callable(spec) and not isinstance(spec, nn.Module) else spec


def seeded(seed: int, make: Callable, *args: Any) -> Any:
    torch.manual_seed(seed)
    return make(*args)


# --- looking at values ------------------------------------------------------------------------------------------------


def flat(value: Any) -> Iterator[Any]:
    """The leaves of a nested structure, dataclasses and modules (their state) included."""
    if isinstance(value, nn.Module):
        value = dict(itertools.chain(value.named_parameters(), value.named_buffers()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, f.name) for f in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for item in value:
        yield from flat(item)


def shape_of(value: Any) -> Any:
    """The structure of a value without its leaves: container types, keys and lengths."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [shape_of(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, dict):
        return type(value), {k: shape_of(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [shape_of(v) for v in value]
    return None if isinstance(value, Tensor) else value


def tensors(value: Any) -> list[Tensor]:
    return [t for t in flat(value) if isinstance(t, Tensor)]


def leaves(roots: Iterable[Tensor]) -> list[Tensor]:
    """Every leaf that requires grad and that `roots` depend on, in a fixed order."""
    found: dict[int, Tensor] = {}
    seen: set[Any] = set()
    stack = [t for t in roots if t.requires_grad][::-1]
    nodes = [torch.autograd.graph.get_gradient_edge(t).node for t in stack]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.setdefault(id(node.variable), node.variable)
        nodes.extend(n for n, _ in reversed(node.next_functions))
    return list(found.values())


def sharing(values: Iterable[Tensor]) -> list[int]:
    """For each tensor, the position of the first one that shares its storage (its own if none does)."""
    first: dict[int, int] = {}
    keys = [t.untyped_storage()._cdata if t.numel() else -1 - i for i, t in enumerate(values)]
    return [first.setdefault(key, i) for i, key in enumerate(keys)]


# --- running ----------------------------------------------------------------------------------------------------------


class Backend:
    """The backend under test, counting the graphs that it compiled (Dynamo may interrupt it and start again)."""

    def __init__(self, name: str = BACKEND) -> None:
        self.compile = torch._dynamo.lookup_backend(name)
        self.graphs = 0

    def __call__(self, graph: Any, inputs: Any, **options: Any) -> Callable:
        run = self.compile(graph, inputs, **options)
        self.graphs += 1
        return run


def compiled(program: Callable, backend: Any = BACKEND, **options: Any) -> Callable:
    """`program` behind a plain function, so that Dynamo does not skip what torch itself defines."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    return torch.compile(call, backend=backend, **{"fullgraph": True, **options})


@dataclass
class Observation:
    """What a caller sees of one call and the backward through everything that it returned or changed."""

    structure: Any
    outputs: list[Tensor]
    inputs: list[Tensor]
    gradients: list[Tensor | None]
    sharing: list[int]
    facts: list[tuple]


def facts(t: Tensor, views: bool) -> tuple:
    basic = (t.dtype, tuple(t.shape), t.requires_grad, t.is_leaf)
    return (*basic, t._is_view(), t.stride()) if views else basic


def observe(program: Callable, state: Any, case: Case, seed: int) -> Observation:
    inputs = seeded(seed, lambda: [made(i) for i in case.inputs])
    given = tensors([state, inputs])
    wrt, versions = leaves(given), [t._version for t in given]
    out = seeded(seed, lambda: program(*inputs, **case.kwargs))
    outputs = tensors(out)
    changed = [t for t, v in zip(given, versions, strict=True) if t._version != v]
    backward([*outputs, *changed], case.cotangent)
    gradients = take_gradients(wrt)
    seen = [facts(t, case.views) for t in outputs]
    return Observation(shape_of(out), outputs, given, gradients, sharing([*given, *outputs]), seen)


def backward(roots: list[Tensor], cotangent: Callable = torch.randn_like, **options: Any) -> None:
    roots = [t for t in roots if t.requires_grad and t.dtype.is_floating_point | t.dtype.is_complex]
    torch.manual_seed(1)
    if roots:
        torch.autograd.backward(roots, [cotangent(t.detach()) for t in roots], **options)


def take_gradients(wrt: Iterable[Tensor]) -> list[Tensor | None]:
    """Read every `.grad` and set it back to None."""
    gradients = []
    for t in wrt:
        gradients.append(t.grad)
        t.grad = None
    return gradients


# --- comparing --------------------------------------------------------------------------------------------------------


def check(case: Case) -> None:
    """Eager and compiled agree on `case`, on the first call and on those that later variants serve."""
    backend = Backend()
    eager, copy = (seeded(0, case.make) for _ in range(2))
    fast = compiled(copy, backend, **case.compile)
    for step in range(case.steps):
        expected = observe(eager, eager, case, step)
        actual = observe(fast, copy, case, step)
        assert_same(expected, actual)
    assert backend.graphs > 0, "nothing was compiled"


def assert_same(expected: Observation, actual: Observation) -> None:
    assert expected.structure == actual.structure
    assert expected.facts == actual.facts
    assert expected.sharing == actual.sharing
    assert [t.requires_grad for t in expected.inputs] == [t.requires_grad for t in actual.inputs]
    assert_values(expected.outputs, actual.outputs, "output")
    assert_values(expected.inputs, actual.inputs, "input after the call")
    assert_values(expected.gradients, actual.gradients, "gradient")


def assert_values(expected: list, actual: list, what: str = "value") -> None:
    """Equal `None`s first, since that is the more telling failure; then dtypes, shapes and numbers."""
    assert [t is None for t in expected] == [t is None for t in actual], f"{what}: not the Nones that eager has"
    for i, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if want is not None:
            assert_close(want, got, f"{what} {i}")


def assert_close(expected: Tensor, actual: Tensor, what: str = "value") -> None:
    assert (expected.dtype, expected.shape) == (actual.dtype, actual.shape), what
    tolerance = TOLERANCE.get(expected.dtype, 1e-9)
    exact = not (expected.dtype.is_floating_point or expected.dtype.is_complex)
    bound = {"rtol": 0, "atol": 0} if exact else {"rtol": tolerance, "atol": tolerance}
    expected, actual = expected.detach().resolve_conj(), actual.detach().resolve_conj()
    torch.testing.assert_close(actual, expected, equal_nan=True, msg=lambda m: f"{what}: {m}", **bound)


# --- programs with derivatives of their own, which several tests use --------------------------------------------------


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 5 * g * x * x  # not the true 3: the user's own formula must be the one that is used


class Outer(torch.autograd.Function):
    """Saves its own result, and reads an attribute of it, which Dynamo takes for part of the forward."""

    @staticmethod
    def forward(ctx, x):
        y = x.sin().outer(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return (y.mT @ g).sum(0)


class Exponential(torch.autograd.Function):
    """Saves its own result, which has a derivative of its own."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return 3 * g * y


class Weighted(torch.autograd.Function):
    """Its backward reads a value that no gradient reaches."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        (weight,) = ctx.saved_tensors
        return g * weight, None


class ScaledPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, scale, label):
        ctx.save_for_backward(x, y)
        ctx.scale = scale
        return x * y * scale, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        gx = g * y * ctx.scale + h if ctx.needs_input_grad[0] else None
        gy = g * x * ctx.scale + h if ctx.needs_input_grad[1] else None
        return gx, gy, None, None


class SortedWithOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out, order = x.sort()
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return out, order

    @staticmethod
    def backward(ctx, g, _):
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).scatter(0, order, g)


class Affine(torch.autograd.Function):
    """A backward that is not linear: non-zero from a zero cotangent."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x)
        return x * 2, y * 3

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        return 2 * g + 0.1 * x, 3 * h + 1


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@torch.library.custom_op("tapeless_tests::scaled_sine", mutates_args=())
def scaled_sine(x: Tensor, scale: float) -> Tensor:
    return scale * x.sin()


@scaled_sine.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _scaled_sine_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _scaled_sine_backward(ctx, g):
    (x,) = ctx.saved_tensors
    return g * ctx.scale * x.cos() * 7, None  # not the true derivative, on purpose


scaled_sine.register_autograd(_scaled_sine_backward, setup_context=_scaled_sine_context)


@torch.library.custom_op("tapeless_tests::sum_and_difference", mutates_args=())
def sum_and_difference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x + y, x - y


@sum_and_difference.register_fake
def _(x, y):
    return torch.empty_like(x), torch.empty_like(x)


sum_and_difference.register_autograd(lambda ctx, g, h: (g + h, g - h))
