"""The forward of a program as AOTAutograd's first stage traces it, and its calling convention."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import fx
from torch._dynamo import compiled_autograd
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd import graph_capture, graph_capture_wrappers, graph_compile, runtime_wrappers
from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch._guards import TracingContext
from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

from tapeless.torch_internals.decomposed import BY_KERNEL, WRONGLY_DECOMPOSED, as_kernels
from tapeless.torch_internals.running import autocast_enabled, in_grad_mode
from tapeless.torch_internals.settings import settings_of

Boxed = Callable[[list[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Convention:
    """How the captured graph is called, and how its results become what the user's program returns.

    AOTAutograd's view and mutation metadata with its runtime wrappers: duplicate and overlapping inputs, input
    mutation, outputs that alias inputs or each other.
    """

    metadata: Any  # `ViewAndMutationMeta`
    config: Any  # `AOTConfig`
    wrappers: Any
    differentiable: bool  # does anything that the program returns or mutates require a gradient?
    custom: bool  # does it call operators of the user's?

    def output_requires_grad(self) -> list[bool]:
        """Per graph output (mutated inputs, outputs, bases of aliased outputs): does eager's require a gradient?"""
        meta = self.metadata
        infos = [*(meta.input_info[i] for i in meta.mutated_inp_runtime_indices), *meta.output_info]
        bases = [True] * (meta.num_intermediate_bases or 0)
        return [bool(info.requires_grad) for info in infos] + bases

    def input_requires_grad(self) -> list[bool]:
        return [bool(info.requires_grad) for info in self.metadata.input_info]

    def hidden_outputs(self) -> list[int]:
        """Graph outputs that alias an input or another output: hidden from autograd, rebuilt by the wrappers."""
        meta = self.metadata
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
        return len(self.metadata.tokens)

    def mutated_inputs(self) -> list[int]:
        """Inputs whose contents the program changes; the wrappers write them back after the call."""
        meta = self.metadata
        return [i for i in meta.mutated_inp_runtime_indices if meta.input_info[i].mutates_data]

    @property
    def first_output(self) -> int:
        """Where the program's own outputs begin among the graph's: behind the new contents of mutated inputs."""
        return len(self.metadata.mutated_inp_runtime_indices)

    def write_backs(self) -> list[tuple[int, int]]:
        """(graph output, input): the new contents of each input that the program changes."""
        meta = self.metadata
        pairs = enumerate(meta.mutated_inp_runtime_indices)
        return [(output, i) for output, i in pairs if meta.input_info[i].mutates_data]

    def argument_of(self, placeholder: fx.Node) -> int | None:
        """Index of the program's own argument that this graph input is, if it is one (not a synthetic base)."""
        description = placeholder.meta.get("desc")
        return description.idx if isinstance(description, PlainAOTInput) else None

    def without_compilers(self) -> Convention:
        """The same as plain data: what AOTAutograd keeps for the compilers it calls is left out.

        Relies on what `AOTAutogradCache` relies on: the metadata and the wrappers can be pickled.
        """
        metadata = copy.copy(self.metadata)
        metadata.traced_tangents, metadata.compile_id_str = [], None
        compilers = ("fw_compiler", "bw_compiler", "inference_compiler", "partition_fn", "decompositions", "cache_info")
        return replace(self, metadata=metadata, config=replace(self.config, **dict.fromkeys(compilers)))

    def wrap(self, function: Boxed) -> Boxed:
        """`function`, in the graph's convention, as a function in the program's convention."""
        meta, config = _hiding_untracked_writes(self.metadata), self.config
        if self._is_plain(meta, config):
            return in_grad_mode(function, self.differentiable)
        if self.differentiable:
            function = _hiding(function, self.hidden_outputs())
        if not self.custom:
            function = _unobserved(function)
        function._boxed_call = True  # type: ignore[attr-defined]
        wrapper = runtime_wrappers.RuntimeWrapper(
            indices_of_inps_to_detach=[], trace_joint=self.differentiable, disable_amp=autocast_enabled()
        )
        wrapped = wrapper.post_compile(function, config, runtime_metadata=meta)
        return runtime_wrappers.post_compile(self.wrappers, wrapped, config, runtime_metadata=meta)[0]

    def _is_plain(self, meta: Any, config: Any) -> bool:
        """Are graph and program called alike? Then the wrappers would take longer than a small program."""
        special = (
            meta.num_mutated_inp_runtime_indices,
            meta.num_outputs_aliased,
            meta.num_intermediate_bases,
            meta.dynamic_outputs,
            meta.grad_enabled_mutation is not None,
            meta.tokens,
            autocast_enabled(),
            runtime_wrappers._should_disable_saved_tensors_hooks(),
        )
        wrapped = runtime_wrappers.post_compile(self.wrappers, _nothing, config, runtime_metadata=meta)[0]
        return wrapped is _nothing and not any(special)


def _convention(state: Any, capture: Any) -> Convention:
    custom = _calls_custom_operators(capture.graph_module.graph)
    return Convention(state.fw_metadata, state.aot_config, capture.wrappers, bool(state.needs_autograd), custom)


def _nothing(args: list[Any]) -> list[Any]:
    return args


def _calls_custom_operators(graph: fx.Graph) -> bool:
    """Is there an operator of the user's, whose aliases torch wants to look at?"""
    ops = [node.target for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    return any(op.namespace not in ("aten", "prims") for op in ops)


def _unobserved(function: Boxed) -> Boxed:
    """`function` outside of the mode in which the wrappers run a first call, in search of custom operators.

    Under a mode, kernels that conjugate without computing are wrong: `linalg.pinv` of a complex matrix. Relies on the
    mode's being `_AnalyzeCustomOpInputOutputMode`, innermost when the graph is called.
    """

    def boxed(args: list[Any]) -> Sequence[Any]:
        if not isinstance(_get_current_dispatch_mode(), runtime_wrappers._AnalyzeCustomOpInputOutputMode):
            return function(args)
        with _pop_mode_temporarily():
            return function(args)

    return boxed


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
        with _forward_only_stage1(), as_kernels(*WRONGLY_DECOMPOSED, instead=BY_KERNEL):
            capture = graph_compile.aot_stage1_graph_capture(state, function)
        return capture.graph_module, _convention(state, capture)


@contextlib.contextmanager
def every_number_drawn() -> Iterator[None]:
    """While it lasts, dead code removal leaves random operators alone: what they draw decides what is drawn after them.

    Relies on `torch.fx`, which keeps them anyway, but while Dynamo traces only if Inductor's `fallback_random` is set.
    """
    from torch._inductor import config

    with config.patch(fallback_random=True):
        yield


def assumptions() -> int:
    """How much AOTAutograd has asked Dynamo to guard so far: inputs that are the same tensor, or overlap in memory.

    Relies on `aotautograd_guards` of the tracing context.
    """
    context = TracingContext.try_get()
    return 0 if context is None else len(context.guards_context.aotautograd_guards)


def circumstances() -> str:
    """What tracing to ATen looks at besides the program and its inputs, as text.

    Relies on AOTAutograd's settings, and on the flags that choose an implementation of attention.
    """
    devices = [d for d in torch._C._autocast_supported_devices() if torch.is_autocast_enabled(d)]
    attention = torch.backends.cuda
    found = {
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": [(device, torch.get_autocast_dtype(device)) for device in devices],
        "deterministic": torch.get_deterministic_debug_mode(),
        "defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "attention": (
            attention.flash_sdp_enabled(), attention.mem_efficient_sdp_enabled(),
            attention.math_sdp_enabled(), attention.cudnn_sdp_enabled(),
        ),
        "kernels": (torch.backends.cpu.get_cpu_capability(), torch.backends.mkldnn.enabled),
        "settings": settings_of(aot_autograd.config),
    }  # fmt: skip
    return repr(found)


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
