"""Programs as Dynamo traces them, and what it writes into its graphs."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import fx
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo import symbolic_convert, trace_rules
from torch._dynamo.convert_frame import fullgraph_capture
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.funcname_cache import get_funcname
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.utils import get_metrics_context
from torch._dynamo.variables.higher_order_ops import TorchHigherOrderOperatorVariable
from torch._guards import TracingContext, tracing
from torch._higher_order_ops.register_hook import register_hook_op
from torch._logging._internal import log_state
from torch.utils._pytree import tree_leaves

from tapeless.errors import ProgramFailed, Unsupported, Where


def is_static(tensor: torch.Tensor) -> bool:
    """Does this tensor belong to a module, so that it is the same at every call? Relies on Dynamo's mark."""
    return isinstance(tensor, torch.nn.Parameter) or hasattr(tensor, "_dynamo_static_input_type")


@dataclass(frozen=True)
class TracedFunction:
    """A plain function as Dynamo captured it, whole."""

    module: fx.GraphModule
    inputs: list[Any]  # the tensors (and symbolic sizes) the graph reads: arguments, parameters, closed-over tensors
    output: Any
    bound: tuple[Any, ...]  # the module itself, where a module was traced

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """What capture needs around it outside `torch.compile`: the fake mode and the shapes that Dynamo chose."""
        context = TracingContext(self.output.backend_input.fake_mode)
        context.tensor_to_context = self.output.backend_input.tensor_to_context
        with tracing(context):
            yield

    def rebuild(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A function with the traced one's signature that runs `compiled` in place of the graph."""
        call = self.output.forward_callable(compiled_fn=compiled)
        return lambda *args, **kwargs: call(*self.bound, *args, **kwargs)


def trace_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TracedFunction | None:
    """`function(*args, **kwargs)` as one Dynamo graph; None if it contains no tensor operation.

    Relies on `fullgraph_capture`, the common entry of Dynamo's ahead-of-time frontends: nothing is cached or guarded.
    """
    static = torch._dynamo.config.patch(assume_static_by_default=True, automatic_dynamic_shapes=False)
    with get_metrics_context(), static, _TracingWhole(), _blaming_the_program():
        output = fullgraph_capture(function, args, kwargs)
    found = output.backend_input
    if found is None:
        return None
    bound = (function,) if isinstance(function, torch.nn.Module) else ()
    return TracedFunction(found.graph_module, list(found.example_inputs), output, bound)


class _TracingAutograd(contextlib.AbstractContextManager[None]):
    """`torch._dynamo.config.patch(trace_autograd_ops=True)`, which takes longer than a small program."""

    is_active = False

    def __enter__(self) -> None:
        self.before = torch._dynamo.config.trace_autograd_ops, _TracingAutograd.is_active
        torch._dynamo.config.trace_autograd_ops = _TracingAutograd.is_active = True

    def __exit__(self, *_: Any) -> None:
        torch._dynamo.config.trace_autograd_ops, _TracingAutograd.is_active = self.before


class _Everything(set[Any]):
    """Whatever is looked for is in it."""

    def __contains__(self, _: object) -> bool:
        return True


class _TracingWhole(_TracingAutograd):
    """The same for programs that are taken whole or not at all: recurrent layers are traced too, what is logged is not.

    Relies on `config.allow_rnn` and `config.ignore_logging_functions`, of which Dynamo breaks the graph at the others.
    """

    unlogged = _Everything()

    def __enter__(self) -> None:
        super().__enter__()
        config = torch._dynamo.config
        self.settings = config.allow_rnn, config.ignore_logging_functions
        config.allow_rnn, config.ignore_logging_functions = True, self.unlogged

    def __exit__(self, *_: Any) -> None:
        config = torch._dynamo.config
        config.allow_rnn, config.ignore_logging_functions = self.settings
        super().__exit__(*_)


_refuse_leaves = OutputGraph._check_requires_grad_intermediate_outputs


def _refuse_leaves_that_show(output: OutputGraph, results: list[Any], tx: Any) -> None:
    """Dynamo refuses a result that was computed from a leaf made inside (`x.detach().requires_grad_()`), because
    AOTAutograd would not tell that it requires a gradient. Nothing is lost if it requires one for an input's sake too.

    Relies on the method that is replaced by this one, and on `leaf_var_creation_order`, which it reads.
    """
    if not (_TracingAutograd.is_active and _require_grad_anyway(output, results)):
        _refuse_leaves(output, results, tx)


def _require_grad_anyway(output: OutputGraph, results: list[Any]) -> bool:
    """Do all results that require a gradient depend on an input that does? A leaf itself does not."""
    leaves = {v.as_proxy().node for v in output.leaf_var_creation_order if not v.source}
    reached: set[fx.Node] = set()
    for node in output.graph.nodes:
        begins = node.op == "placeholder" or any(n in reached for n in node.all_input_nodes)
        if begins and node not in leaves and _may_require_grad(node.meta.get("example_value")):
            reached.add(node)
    return all(v.as_proxy().node in reached for v in results if v.is_tensor() and v.requires_grad)


def _may_require_grad(example: Any) -> bool:
    tensors = [leaf for leaf in tree_leaves(example) if isinstance(leaf, torch.Tensor)]
    return any(t.requires_grad for t in tensors)


OutputGraph._check_requires_grad_intermediate_outputs = cast(Any, _refuse_leaves_that_show)


@dataclass(frozen=True)
class CapturingAutograd:
    """A Dynamo backend under which `torch.autograd.grad` in the program is traced, not a reason to break the graph.

    Relies on `backend_ctx_ctor`, a context that Dynamo enters around every call (an attribute of the object, for Dynamo
    copies those to a wrapper), and on `config.trace_autograd_ops`. Equal backends share compiled code.
    """

    function: Callable[..., Any]
    options: tuple[tuple[str, Any], ...] = ()
    backend_ctx_ctor: Callable[[], contextlib.AbstractContextManager[Any]] = _TracingAutograd

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return self.function(module, inputs, **({"options": dict(self.options)} if self.options else {}))


def compile_capturing_autograd(
    model: Callable[..., Any], backend: str, options: dict[str, Any], fullgraph: bool = False, **settings: Any
) -> Callable[..., Any]:
    """`torch.compile` that captures `torch.autograd.grad`. Relies on `torch._dynamo.optimize`, which that calls."""
    capturing = CapturingAutograd(torch._dynamo.lookup_backend(backend), tuple(sorted(options.items())))
    return torch._dynamo.optimize(capturing, nopython=fullgraph, **settings)(model)


def compile_whole(
    function: Callable[..., Any], backend: Callable[..., Any], most: int, dynamic: bool | None = False
) -> Callable[..., Any]:
    """`function` with `backend` run on its one whole graph, per signature, at most `most` of those."""
    settings = {"dynamic": dynamic, "recompile_limit": most, "isolate_recompiles": True}
    capturing = CapturingAutograd(backend, backend_ctx_ctor=_TracingWhole)
    compiled = torch._dynamo.optimize(capturing, nopython=True, **settings)(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _blaming_the_program():
            return compiled(*args, **kwargs)

    return call


@contextlib.contextmanager
def _blaming_the_program() -> Iterator[None]:
    """An operator that fails on the example inputs: say which line of the program it is. Relies on `real_stack`."""
    try:
        yield
    except Exception as problem:
        clearer = control_flow_in_transform(problem)
        if clearer is not None:
            raise clearer from problem
        cause, stack = _innermost(problem), getattr(problem, "real_stack", None)
        if not isinstance(problem, TorchDynamoException) or isinstance(cause, TorchDynamoException) or not stack:
            raise
        frame = stack[-1]
        where = Where(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        raise ProgramFailed(where, f"{type(cause).__name__}: {cause}") from cause


def _innermost(problem: BaseException) -> BaseException:
    inner = problem.__cause__ or problem.__context__
    return problem if inner is None else _innermost(inner)


def control_flow_in_transform(problem: BaseException) -> Unsupported | None:
    """The error to raise instead, if Dynamo failed to trace control flow inside a transform of `torch.func`.

    Relies on `real_stack`, the program's own frames, and on what stands for a higher order operator in Dynamo's.
    """
    chain = list(_causes(problem))
    stack = next((found for p in chain if (found := getattr(p, "real_stack", None))), ())
    if not any(FUNCTORCH in Path(frame.filename).parents for frame in stack):
        return None
    objects = [frame.f_locals.get("self") for p in chain for frame, _ in traceback.walk_tb(p.__traceback__)]
    names = [o.value.__name__ for o in objects if isinstance(o, TorchHigherOrderOperatorVariable)]
    control = next((CONTROL_FLOW[name] for name in names if name in CONTROL_FLOW), None)
    if control is None:
        return None
    own = [frame for frame in stack if FUNCTORCH.parent not in Path(frame.filename).parents]
    where = Where(own[-1].filename, own[-1].lineno or 0, own[-1].name, own[-1].line or "") if own else Where()
    return Unsupported(
        f"`{control}` inside a transform that a traced function calls\n  at {where}\n"
        "  There the transform is torch's own, and Dynamo does not trace control flow inside those.\n"
        "  Transform the function that contains it from outside what is traced or compiled: `tapeless.grad`, `vjp`,"
        " `jvp` and `hvp` go through control flow and through each other. Or unroll the loop in Python, and write"
        " `torch.where` for `torch.cond`."
    )


FUNCTORCH = Path(torch.__file__).parent / "_functorch"
CONTROL_FLOW = {
    "cond": "torch.cond", "scan": "scan", "map_impl": "map", "map": "map", "while_loop": "while_loop",
    "associative_scan": "associative_scan",
}  # fmt: skip


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def skip_in_dynamo(*paths: str) -> None:
    """Dynamo must not trace the functions of these files and folders, should it meet them running a backward."""
    trace_rules.SKIP_DIRS.extend(paths)
    trace_rules._recompile_re()


def _name_in_logs(filename: str, line: int) -> str | None:
    """The function a line stands in, for a log of Dynamo's, if that is being written.

    Dynamo asks for it at every call it traces, logged or not, and tokenizes whole source files to answer: up to a third
    of a second in each process. Relies on `symbolic_convert.get_funcname`, and on the names of the two logs.
    """
    logs = ("trace_call", "trace_source")
    return get_funcname(filename, line) if any(map(log_state.is_artifact_enabled, logs)) else None


symbolic_convert.get_funcname = _name_in_logs


COMPILER = (
    "ir", "rules", "differentiate", "specialize", "partition", "backends", "background", "cache", "runtime",
    "torch_internals",
)  # fmt: skip
skip_in_dynamo(*(str(Path(__file__).parent.parent / folder) for folder in COMPILER))


set_tracer = set_eval_frame  # who looks on as Python runs: Dynamo, or None; returns who did before


set_grad_enabled = torch._C._set_grad_enabled  # how Dynamo writes the start and the end of a `no_grad` region


data_attribute = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]  # how Dynamo writes `x.data`


autograd_function_apply = torch.ops.higher_order.autograd_function_apply  # how Dynamo hands over a custom Function

register_hook = register_hook_op  # how Dynamo hands over a hook on an intermediate value


# How control flow stands in a traced graph.
cond = torch.ops.higher_order.cond
scan = torch.ops.higher_order.scan
map_ = torch.ops.higher_order.map_impl
while_loop = torch.ops.higher_order.while_loop
below_autograd = torch._C._AutoDispatchBelowAutograd  # operators called inside leave no trace in autograd
with_effects = torch.ops.higher_order.with_effects  # how AOTAutograd orders calls that have effects
