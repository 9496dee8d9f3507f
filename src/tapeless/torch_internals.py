"""The only door to private torch. Each function says what it relies on.

tests/test_torch_internals.py fails clearly when that moves.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo import compiled_autograd, trace_rules
from torch._dynamo.convert_frame import fullgraph_capture
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import get_metrics_context
from torch._functorch import aot_autograd, pyfunctorch
from torch._functorch._aot_autograd import graph_capture, graph_capture_wrappers, graph_compile, runtime_wrappers
from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch._guards import TracingContext, tracing
from torch._library.autograd import make_autograd_impl
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map_only

from tapeless.errors import ProgramFailed, Where

without_modes = _disable_current_modes

COMPILER = (
    "ir",
    "rules",
    "differentiate",
    "specialize",
    "partition",
    "backends",
    "runtime",
)  # folders that run per call

Boxed = Callable[[list[Any]], Sequence[Any]]


# -- capture -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convention:
    """How the captured graph is called, and how its results become what the user's program returns.

    AOTAutograd's view and mutation metadata with its runtime wrappers: duplicate and overlapping inputs, input
    mutation, outputs that alias inputs or each other.
    """

    state: Any
    capture: Any

    @property
    def differentiable(self) -> bool:
        """Does anything that the program returns or mutates require a gradient?"""
        return bool(self.state.needs_autograd)

    def output_requires_grad(self) -> list[bool]:
        """Per graph output (mutated inputs, outputs, bases of aliased outputs): does eager's require a gradient?"""
        meta = self.state.fw_metadata
        infos = [*(meta.input_info[i] for i in meta.mutated_inp_runtime_indices), *meta.output_info]
        bases = [True] * (meta.num_intermediate_bases or 0)
        return [bool(info.requires_grad) for info in infos] + bases

    def input_requires_grad(self) -> list[bool]:
        return [bool(info.requires_grad) for info in self.state.fw_metadata.input_info]

    def hidden_outputs(self) -> list[int]:
        """Graph outputs that alias an input or another output: hidden from autograd, rebuilt by the wrappers."""
        meta = self.state.fw_metadata
        mutated = meta.mutated_inp_runtime_indices
        metadata_only = [
            k
            for k, i in enumerate(mutated)
            if meta.input_info[i].mutates_metadata and not meta.input_info[i].mutates_data
        ]
        return metadata_only + [len(mutated) + i for i in meta.aliased_out_indices]

    @property
    def tokens(self) -> int:
        """How many effect tokens the traced graph takes and returns before everything else."""
        return len(self.state.fw_metadata.tokens)

    def mutated_inputs(self) -> list[int]:
        """Inputs whose contents the program changes; the wrappers write them back after the call."""
        meta = self.state.fw_metadata
        return [i for i in meta.mutated_inp_runtime_indices if meta.input_info[i].mutates_data]

    @property
    def first_output(self) -> int:
        """Where the program's own outputs begin among the graph's: behind the new contents of mutated inputs."""
        return len(self.state.fw_metadata.mutated_inp_runtime_indices)

    def write_backs(self) -> list[tuple[int, int]]:
        """(graph output, input): the new contents of each input that the program changes."""
        meta = self.state.fw_metadata
        pairs = enumerate(meta.mutated_inp_runtime_indices)
        return [(output, i) for output, i in pairs if meta.input_info[i].mutates_data]

    def argument_of(self, placeholder: fx.Node) -> int | None:
        """Index of the program's own argument that this graph input is, if it is one (not a synthetic base)."""
        description = placeholder.meta.get("desc")
        return description.idx if isinstance(description, PlainAOTInput) else None

    def wrap(self, function: Boxed) -> Boxed:
        """`function`, in the graph's convention, as a function in the program's convention."""
        meta, config = _hiding_untracked_writes(self.state.fw_metadata), self.state.aot_config
        if self.differentiable:
            function = _hiding(function, self.hidden_outputs())
        function._boxed_call = True  # type: ignore[attr-defined]
        wrapper = runtime_wrappers.RuntimeWrapper(
            indices_of_inps_to_detach=[], trace_joint=self.differentiable, disable_amp=autocast_enabled()
        )
        wrapped = wrapper.post_compile(function, config, runtime_metadata=meta)
        return runtime_wrappers.post_compile(self.capture.wrappers, wrapped, config, runtime_metadata=meta)[0]


def _hiding_untracked_writes(meta: Any) -> Any:
    """Inputs that were only written where autograd does not look are written back so, as the wrappers do for leaves."""

    def leaf(info: Any) -> Any:
        unseen = info.mutations_under_no_grad_or_inference_mode or info.mutations_hidden_from_autograd
        return replace(info, is_leaf=info.is_leaf or unseen)

    changed = copy.copy(meta)
    changed.input_info = [leaf(info) for info in meta.input_info]
    return changed


def _hiding(function: Boxed, hidden: list[int]) -> Boxed:
    if not hidden:
        return lambda args: function(args)

    def boxed(args: list[Any]) -> list[Any]:
        out = list(function(args))
        for i in hidden:
            out[i] = runtime_wrappers.TensorAlias(out[i])
        return out

    return boxed


def capture_forward(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[fx.GraphModule, Convention]:
    """The module's forward as a functional ATen graph in AOTAutograd's training convention; no joint graph is traced.

    Relies on stage 1 of AOTAutograd: its metadata pass runs in grad mode (so operators are those of training), and
    `aot_dispatch_autograd_graph` is replaced, while it runs, by one that traces the forward alone.
    """
    with contextlib.ExitStack() as stack:
        prepared = aot_autograd.prepare_aot_module_simplified(module, inputs, None, {}, False, False, flatten=False)
        function, _, _, _, fakes, descriptions, config, fake_mode, shape_env, _, _, active = prepared
        stack.enter_context(compiled_autograd._disable())
        state = aot_autograd.create_aot_state(stack, function, fakes, descriptions, config, fake_mode, shape_env)
        state.fw_metadata.act_input_indices = active
        with _forward_only_stage1(), as_kernels(*WRONGLY_DECOMPOSED):
            capture = graph_compile.aot_stage1_graph_capture(state, function)
        return capture.graph_module, Convention(state, capture)


# Tracing replaces it by a decomposition that takes the padding of `target` for a label: another loss than eager's.
WRONGLY_DECOMPOSED = (torch.ops.aten.multilabel_margin_loss_forward.default,)


@contextlib.contextmanager
def as_kernels(*ops: Any) -> Iterator[None]:
    """While it lasts, tracing meets these operators themselves, not what torch decomposes them into.

    Relies on `py_kernels[DispatchKey.Autograd]`, where torch registers such a decomposition.
    """
    key = torch._C.DispatchKey.Autograd
    found = {op: op.py_kernels.pop(key) for op in ops if key in op.py_kernels}
    for op in found:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernel in found.items():
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()


@contextlib.contextmanager
def _forward_only_stage1() -> Iterator[None]:
    original = graph_compile.aot_dispatch_autograd_graph
    graph_compile.aot_dispatch_autograd_graph = _dispatch_forward_graph
    try:
        yield
    finally:
        graph_compile.aot_dispatch_autograd_graph = original


def _dispatch_forward_graph(flat_fn: Any, flat_args: Any, descriptions: Any, config: Any, *, fw_metadata: Any) -> Any:
    prepared = graph_capture_wrappers.fn_prepped_for_autograd(flat_fn, descriptions, fw_metadata, config)

    @graph_capture_wrappers.simple_wraps(flat_fn)
    def forward(*args: Any) -> Any:
        (outs, _mask), (out_descriptions, _) = cast(Any, prepared(*args))
        return list(outs), list(out_descriptions)

    tracing = graph_capture._prepare_graph_capture_tracing(
        forward, flat_args, descriptions, flat_fn, fw_metadata=fw_metadata, aot_config=config, trace_joint=False
    )
    module, saved = graph_capture._create_graph_and_save_traced_inputs(
        tracing.fn_to_trace, tracing.flat_args, tracing.flat_args_descs, aot_config=config
    )
    module.graph.eliminate_dead_code()
    return module, saved, tracing.flat_args_descs, tracing.maybe_subclass_meta


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
    with get_metrics_context(), static, _blaming_the_program():
        output = fullgraph_capture(function, args, kwargs)
    found = output.backend_input
    if found is None:
        return None
    bound = (function,) if isinstance(function, torch.nn.Module) else ()
    return TracedFunction(found.graph_module, list(found.example_inputs), output, bound)


class _TracingAutograd(contextlib.AbstractContextManager[None]):
    """`torch._dynamo.config.patch(trace_autograd_ops=True)`, which takes longer than a small program."""

    def __enter__(self) -> None:
        self.before = torch._dynamo.config.trace_autograd_ops
        torch._dynamo.config.trace_autograd_ops = True

    def __exit__(self, *_: Any) -> None:
        torch._dynamo.config.trace_autograd_ops = self.before


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
    compiled = torch._dynamo.optimize(CapturingAutograd(backend), nopython=True, **settings)(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        with _blaming_the_program():
            return compiled(*args, **kwargs)

    return call


@contextlib.contextmanager
def _blaming_the_program() -> Iterator[None]:
    """An operator that fails on the example inputs: say which line of the program it is. Relies on `real_stack`."""
    try:
        yield
    except TorchDynamoException as problem:
        cause, stack = _innermost(problem), getattr(problem, "real_stack", None)
        if isinstance(cause, TorchDynamoException) or not stack:
            raise
        frame = stack[-1]
        where = Where(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        raise ProgramFailed(where, f"{type(cause).__name__}: {cause}") from cause


def _innermost(problem: BaseException) -> BaseException:
    inner = problem.__cause__ or problem.__context__
    return problem if inner is None else _innermost(inner)


set_grad_enabled = torch._C._set_grad_enabled  # how Dynamo writes the start and the end of a `no_grad` region


data_attribute = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]  # how Dynamo writes `x.data`


autograd_function_apply = torch.ops.higher_order.autograd_function_apply  # how Dynamo hands over a custom Function


# How control flow stands in a traced graph.
cond = torch.ops.higher_order.cond
scan = torch.ops.higher_order.scan
map_ = torch.ops.higher_order.map_impl
while_loop = torch.ops.higher_order.while_loop
below_autograd = torch._C._AutoDispatchBelowAutograd  # operators called inside leave no trace in autograd
with_effects = torch.ops.higher_order.with_effects  # how AOTAutograd orders calls that have effects


# -- fake tensors --------------------------------------------------------------------------------------------------


def fake_mode_of(values: Sequence[Any]) -> FakeTensorMode:
    """The fake mode of the first fake tensor among `values` (a new one if there is none)."""
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), None) or FakeTensorMode()


def fresh(like: torch.Tensor) -> torch.Tensor:
    """Another fake tensor of the same type, made behind every mode's back."""
    with without_modes():
        return like.detach()


def stacked_type(like: torch.Tensor, length: int | torch.SymInt) -> torch.Tensor:
    """A fake tensor of `length` such tensors, stacked; made behind every mode's back."""
    with without_modes():
        return like.new_empty((length, *like.shape))


def unknown_size(fake_mode: FakeTensorMode) -> torch.SymInt:
    """A symbol for a size that only the run will know. Relies on unbacked symbols of the mode's shape environment."""
    environment = fake_mode.shape_env
    assert environment is not None, "a fake mode without symbols"
    with environment.ignore_fresh_unbacked_symbols():
        return environment.create_unbacked_symint()


def is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


@contextlib.contextmanager
def _data_dependent_sizes(fake_mode: FakeTensorMode) -> Iterator[None]:
    """`g[mask]` has a size that only the run knows: let it be a symbol."""
    environment = fake_mode.shape_env
    if environment is None:
        yield
        return
    settings = environment.settings
    environment.settings = replace(settings, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        environment.settings = settings


@contextlib.contextmanager
def emission(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Where rules run: on fake tensors, symbolic and data-dependent sizes allowed, without autograd or autocast."""
    with (
        _data_dependent_sizes(fake_mode),
        fake_mode,
        enable_python_dispatcher(),
        torch.no_grad(),
        torch._C._DisableAutocast(),
    ):
        yield


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Where a graph is run on real tensors in the middle of a compilation, under eager's autograd.

    Relies on `_disable_current_modes`, and leaves the random numbers of the program as they were.
    """
    with without_modes(), torch.random.fork_rng(devices=[]), torch.enable_grad(), torch._C._DisableAutocast():
        yield


def skip_in_dynamo(*paths: str) -> None:
    """Dynamo must not trace the functions of these files and folders, should it meet them running a backward."""
    trace_rules.SKIP_DIRS.extend(paths)
    trace_rules._recompile_re()


# -- running -------------------------------------------------------------------------------------------------------


def in_forward_mode() -> bool:
    """Is a `torch.autograd.forward_ad.dual_level` active?"""
    return forward_ad._current_level >= 0


def in_functorch() -> bool:
    """Is a transform of `torch.func` active?"""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0  # type: ignore[attr-defined]


@contextlib.contextmanager
def outside_functorch() -> Iterator[None]:
    """As if no transform of `torch.func` were active."""
    if not in_functorch():
        yield
        return
    with pyfunctorch.temporarily_clear_interpreter_stack():
        yield


def keeping_versions(function: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """`function`, with the `_version` of the arguments at `positions` what it was before, as after writes to `.data`.

    Relies on `torch.autograd._unsafe_preserve_version_counter`.
    """

    def call(*args: Any) -> Any:
        with torch.autograd._unsafe_preserve_version_counter(tuple(args[i] for i in positions)):
            return function(*args)

    return call if positions else function


def autocast_enabled() -> bool:
    return torch._C._is_any_autocast_enabled()


without_autocast = torch._C._DisableAutocast


def engine_wants(node: Any) -> bool:
    """Inside a backward: will the autograd engine use what is sent along the edge to `node`?

    Relies on `_will_engine_execute_node`, which refuses to answer for a leaf that `autograd.grad` was asked for: a yes.
    """
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:
        return True


# -- tracing torch's own derivatives -------------------------------------------------------------------------------


@contextlib.contextmanager
def tracing_on_fakes() -> Iterator[None]:
    """Where a derivative of torch's own is traced: outside every active mode, in grad mode."""
    with without_modes(), enable_python_dispatcher(), torch.enable_grad():
        yield


@contextlib.contextmanager
def ignoring_fresh_symbols(fake_mode: FakeTensorMode) -> Iterator[None]:
    """A run on fake tensors whose results are thrown away, data-dependent sizes with them."""
    environment = fake_mode.shape_env
    with environment.ignore_fresh_unbacked_symbols() if environment is not None else contextlib.nullcontext():
        yield


def custom_op_without_derivative(op: Any) -> bool:
    """Is `op` a `torch.library.custom_op` for which nobody called `register_autograd`?"""
    definition = OPDEFS.get(op.name().split(".")[0])
    return definition is not None and definition._backward_fn is None


def has_registered_derivative(op: Any) -> bool:
    """Is `op` an operator from outside torch for which somebody registered a derivative, in Python or in C++?"""
    if op.namespace in ("aten", "prims") or custom_op_without_derivative(op):
        return False
    return any(op.has_kernel_for_dispatch_key(key) for key in _AUTOGRAD_KEYS)


_AUTOGRAD_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.AutogradCPU, torch._C.DispatchKey.AutogradCUDA)


class _Known:
    """An operator whose results are known: running its kernel returns them."""

    def __init__(self, op: Any, results: Any) -> None:
        self.op, self.results = op, results

    def __getattr__(self, name: str) -> Any:
        return getattr(self.op, name)

    def redispatch(self, *_: Any, **__: Any) -> Any:
        return self.results


def registered_call(op: Any, args: Sequence[Any], kwargs: dict[str, Any], results: Any) -> Any:
    """`results`, which `op(*args, **kwargs)` returned, as autograd would have recorded them.

    Relies on `make_autograd_impl`, which builds the autograd kernel of a custom operator around the operator. One whose
    kernel came another way is run again.
    """
    definition = OPDEFS.get(op.name().split(".")[0])
    if definition is None:
        return op(*args, **kwargs)
    known = tree_map_only(torch.Tensor, torch.Tensor.detach, results)
    known = tuple(known) if len(op._schema.returns) > 1 else known
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)  # handed on to the kernel alone, which does not run
    return make_autograd_impl(cast(Any, _Known(op, known)), definition)(below, *args, **kwargs)


skip_in_dynamo(__file__, *(str(Path(__file__).parent / stage) for stage in COMPILER))


# -- optimizers ----------------------------------------------------------------------------------------------------


def has_step_hooks(optimizer: torch.optim.Optimizer) -> bool:
    """Is somebody to be told about the steps of this optimizer? Relies on the names of its tables of hooks."""
    return bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)


def mark_stepped(optimizer: torch.optim.Optimizer) -> None:
    """What learning rate schedules look at to see that the optimizer was used before them."""
    optimizer._opt_called = True  # type: ignore[attr-defined]


# -- Inductor ------------------------------------------------------------------------------------------------------


def compile_with_inductor(
    module: fx.GraphModule, examples: Sequence[Any], args: Sequence[Any], backward: bool
) -> Callable[[list[Any]], Any]:
    """An ATen graph as Inductor's code, a function of one list. `examples` are fakes; `args` tell the strides.

    Relies on `compile_fx_inner`, on the table of decompositions it expects to have been applied, on the passes over
    joint graphs that replace random operators, and on a tracing context, without which nothing is cached on disk.
    Random numbers are eager's.
    """
    from torch._inductor import config, virtualized
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch.fx.experimental.proxy_tensor import make_fx

    fake_mode = fake_mode_of(examples)
    fakes = [_restrided(fake_mode, e, a) for e, a in zip(examples, args, strict=True)]
    with without_modes(), torch.no_grad(), tracing(TracingContext(fake_mode)), config.patch(fallback_random=True):
        with fake_mode, enable_python_dispatcher():
            decomposed = make_fx(fx.Interpreter(module).run, select_decomp_table(), "real")(*fakes)
        inputs = [node.meta["val"] for node in decomposed.graph.find_nodes(op="placeholder")]
        with virtualized.V.set_fake_mode(fake_mode):
            joint_graph_passes(decomposed)
        return compile_fx_inner(decomposed, inputs, is_backward=backward)


def _restrided(fake_mode: FakeTensorMode, example: Any, arg: Any) -> Any:
    """The fake tensor with the strides of a real one, which are sizes multiplied up where sizes are symbolic."""
    if not isinstance(example, torch.Tensor):
        return example
    strides = arg.stride()
    if any(isinstance(n, torch.SymInt) for n in (*example.shape, *example.stride())):
        strides = _dense_strides(example.shape, arg)
    if strides is None or tuple(map(str, example.stride())) == tuple(map(str, strides)):
        return example
    with without_modes(), fake_mode:
        return torch.empty_strided(example.shape, strides, dtype=example.dtype, device=example.device)


def _dense_strides(shape: Sequence[Any], arg: torch.Tensor) -> list[Any] | None:
    """Strides for `shape` with its dimensions in the order that they have in `arg`; None if that one has gaps."""
    order = sorted(range(arg.dim()), key=lambda dim: (arg.stride(dim), arg.shape[dim]))
    found: list[Any] = [None] * arg.dim()
    size, real = 1, 1
    for dim in order:
        if arg.stride(dim) != real and arg.shape[dim] != 1:
            return None
        found[dim] = size
        size, real = size * shape[dim], real * arg.shape[dim]
    return found
