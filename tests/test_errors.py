"""Every refusal names the operator, the user's own line, why it matters and what to do; all problems at once."""

import re
import warnings

import pytest
import torch
from torch import Tensor

import tapeless
from tapeless.errors import BadOption, MissingRule, NotATensor, NotDependent, ProgramFailed, Unsupported


@torch.library.custom_op("test_errors::ripple", mutates_args=())
def ripple(x: Tensor) -> Tensor:
    return x.sin()


@torch.library.custom_op("test_errors::swirl", mutates_args=())
def swirl(x: Tensor) -> Tensor:
    return x.cos()


ripple.register_fake(torch.empty_like)
swirl.register_fake(torch.empty_like)


def without_rules(x, w):
    y = ripple(x * w)
    z = swirl(y)
    return ripple(z).sum()


def inputs():
    return torch.randn(3), torch.randn(3, requires_grad=True)


def message(error, function, *args, **kwargs):
    with pytest.raises(error) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# --- missing rules ----------------------------------------------------------------------------------------------------


def test_missing_rules_are_reported_at_once():
    told = message(MissingRule, tapeless.differentiate, without_rules, *inputs())
    line = without_rules.__code__.co_firstlineno + 1

    assert told.startswith("no derivative rule for `test_errors.ripple.default`")
    assert f"test_errors.py:{line} in without_rules:  y = ripple(x * w)" in told
    assert "depends on `w`" in told
    assert "without `register_autograd`" in told
    assert "also without a rule in this graph: test_errors.swirl.default\n" in told
    assert ".detach()" in told and "docs/rules.md" in told


def test_missing_rule_stays_readable_inside_torch_compile():
    told = message(Exception, torch.compile(without_rules, backend="tapeless"), *inputs())

    assert "MissingRule: no derivative rule for `test_errors.ripple.default`\n  at " in told
    assert "y = ripple(x * w)" in told
    assert "Traceback" not in told


def test_an_operator_off_the_path_needs_no_rule():
    x, w = inputs()

    assert "swirl" in str(tapeless.differentiate(lambda x, w: swirl(x) * w, x, w))
    assert "swirl" in str(tapeless.differentiate(lambda x, w: swirl(w).detach() * w, x, w))


def test_fallback_warns_once_and_differentiates_in_eager():
    x, w = inputs()
    custom = torch.compile(lambda x, w: ripple(x) * w, backend="tapeless", options={"fallback": "eager"})
    compiled = torch.compile(without_rules, backend="tapeless", options={"fallback": "eager"})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outputs = [compiled(x, w) for _ in range(3)]
        custom(x, w)
    ours = [str(w.message) for w in caught if "in eager" in str(w.message)]

    assert len(ours) == 1
    assert re.search(r"`test_errors.ripple.default`\n  at .*test_errors.py:\d+ in without_rules", ours[0])
    torch.testing.assert_close(outputs[-1], without_rules(x, w))


class Sevenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 7


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def dirty(x):
    return Dirty.apply(Sevenfold.apply(x) * 1)


def test_fallback_gives_the_gradients_of_eager():
    x = torch.ones(3, requires_grad=True)
    (expected,) = torch.autograd.grad(dirty(x).sum(), x)
    with pytest.warns(UserWarning, match="running this graph in eager"):
        out = torch.compile(dirty, backend="tapeless", options={"fallback": "eager"})(x)
    (actual,) = torch.autograd.grad(out.sum(), x)

    torch.testing.assert_close(actual, expected)


# --- programs that fail -----------------------------------------------------------------------------------------------


def mismatched(a, b):
    doubled = a * 2
    return doubled @ b


def test_shape_error_names_the_line():
    told = message(ProgramFailed, tapeless.differentiate, mismatched, torch.randn(2, 3), torch.randn(2, 3))
    line = mismatched.__code__.co_firstlineno + 2

    assert f"test_errors.py:{line} in mismatched:  return doubled @ b" in told
    assert "[2, 3]" in told


def test_shape_error_names_the_line_inside_torch_compile():
    told = message(RuntimeError, torch.compile(mismatched, backend="tapeless"), torch.randn(2, 3), torch.randn(2, 3))

    assert "return doubled @ b" in told


def test_number_where_the_program_wants_a_tensor():
    told = message(ProgramFailed, tapeless.differentiate, lambda x, y: torch.matmul(x, y), torch.randn(3), 2.0)

    assert "torch.matmul(x, y)" in told
    assert "must be Tensor, not float" in told


def test_nothing_to_differentiate():
    assert "no tensor operation" in message(Unsupported, tapeless.differentiate, lambda x: 3, torch.randn(2))


def test_custom_function_that_marks_inputs_dirty():
    told = message(Exception, torch.compile(dirty, backend="tapeless"), torch.ones(3, requires_grad=True))

    assert "marks inputs dirty: return a new tensor instead" in told


# --- wrt --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "wrt", "expected"),
    [
        (
            2.0,
            1,
            "argument `b`, named in `wrt`, must be a tensor with a floating point or complex dtype, got float 2.0",
        ),
        (torch.ones(3, dtype=torch.int64), "b", "got a tensor of torch.int64"),
        (2.0, "weight", "no such argument; the arguments are a, b"),
        (2.0, 7, "no such argument; the arguments are a, b"),
    ],
)
def test_wrt_must_name_a_tensor(other, wrt, expected):
    assert expected in message(NotATensor, tapeless.differentiate, lambda a, b: a * b, torch.randn(3), other, wrt=wrt)


@pytest.mark.parametrize("program", [lambda a, b: a * b.detach(), lambda a, b: a * 2, lambda a, b: a * b.argmax()])
def test_wrt_must_reach_an_output(program):
    told = message(NotDependent, tapeless.differentiate, program, torch.randn(3), torch.randn(3), wrt=("a", "b"))

    assert told.startswith("no output depends differentiably on `b`\n")
    assert "outputs: mul" in told


def test_tensor_subclasses_are_refused():
    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
    told = message(Exception, torch.compile(lambda x: x.sin(), backend="tapeless"), rows)

    assert "Unsupported: a program on tensors of type NestedTensor: convert to plain tensors first" in told


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"falback": "eager"}, "unknown option falback; the options are backend, fallback"),
        ({"fallback": "ask"}, 'fallback must be "raise" or "eager", got \'ask\''),
        ({"variants": 0}, "variants must be a positive integer, got 0"),
    ],
)
def test_bad_options(options, expected):
    assert expected in message(BadOption, tapeless.compile, torch.sin, **options)
    compiled = torch.compile(lambda x: x.sin(), backend="tapeless", options=options)
    assert f"BadOption: {expected}" in message(Exception, compiled, inputs()[1])


def test_options_of_compile_are_keywords_or_a_mapping():
    x = torch.ones(2, requires_grad=True)

    for compiled in (
        tapeless.compile(torch.sin, backend="python"),
        tapeless.compile(torch.sin, options={"backend": "python"}),
    ):
        torch.testing.assert_close(compiled(x), x.sin())
    with pytest.raises(BadOption, match="unknown option color"):
        tapeless.compile(torch.sin, options={"color": "red"})
