"""Graphs compiled by Inductor: here and now, or in another process that hands over what it compiled."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import platform
import shlex
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from tapeless.torch_internals.fakes import fake_mode_of, without_modes
from tapeless.torch_internals.generated import Code
from tapeless.torch_internals.kernels import empty_library, together
from tapeless.torch_internals.memory import allocates_much, with_large_pages
from tapeless.torch_internals.products import register_kernels

aten = torch.ops.aten


def compile_with_inductor(
    module: fx.GraphModule,
    examples: Sequence[Any],
    args: Sequence[Any],
    backward: bool,
    last_pass: Callable[[fx.GraphModule], None] = lambda module: None,
) -> Callable[[list[Any]], Any]:
    """An ATen graph as Inductor's code, a function of one list. `examples` are fakes; `args` tell the strides.

    Random numbers are eager's. `last_pass` runs over the decomposed graph.
    """
    fakes = [restrided(e, a) for e, a in zip(examples, args, strict=True)]
    decomposed = decompose_for_inductor(fx.Interpreter(module).run, fakes)
    last_pass(decomposed)
    outputs: Any = decomposed.graph.output_node().args[0]
    compiled = compile_decomposed(decomposed, backward, visible=len(outputs))
    call = getattr(compiled, "current_callable", compiled)  # a graph without calls is not compiled
    return with_large_pages(call) if allocates_much(getattr(compiled, "source_code", "")) else call


def decompose_for_inductor(function: Callable[..., Any], fakes: Sequence[Any]) -> fx.GraphModule:
    """`function` of the fake inputs as a graph of the operators that Inductor knows.

    Relies on its table of decompositions, and on the passes over joint graphs that replace random operators.
    """
    from torch._inductor import config, virtualized
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch.fx.experimental.proxy_tensor import make_fx

    fake_mode = fake_mode_of(fakes)
    with without_modes(), torch.no_grad(), tracing(TracingContext(fake_mode)), config.patch(fallback_random=True):
        with fake_mode, enable_python_dispatcher():
            table = {
                **select_decomp_table(),
                aten.scatter_add.default: _add_one_per_row,
                aten.addmm.default: _add_later,
                aten.bernoulli.default: _draw_in_place,
            }
            decomposed = make_fx(function, table, "real")(*fakes)
        with virtualized.V.set_fake_mode(fake_mode):
            joint_graph_passes(decomposed)
    return decomposed


def _add_one_per_row(into: Any, dim: int, index: Any, values: Any) -> Any:
    """`scatter_add` of one element per row, as losses over classes have it: elementwise, so that kernels fuse it."""
    others = [d for d in range(into.dim()) if d != dim % max(into.dim(), 1)]
    one_each = into.dim() and index.shape[dim] == 1 and all(index.shape[d] == into.shape[d] for d in others)
    if not one_each or index.shape != values.shape:
        return NotImplemented
    positions = torch.arange(into.shape[dim], device=into.device)
    positions = positions.view([-1 if d == dim % into.dim() else 1 for d in range(into.dim())])
    return into + torch.where(positions == index, values, 0)


def _add_later(bias: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """A product with a bias as two: kernels that read the sum add on the way, in the backward once more."""
    if (beta, alpha) != (1, 1) or a.dtype not in (torch.float32, torch.float64) or bias.dim() != 1:
        return NotImplemented
    return torch.mm(a, b) + bias


def _draw_in_place(probabilities: Any, generator: Any = None) -> Any:
    """The operator as its kernel draws: into memory that is contiguous. Inductor's table would draw other numbers."""
    return aten.bernoulli.Tensor(probabilities.contiguous(), probabilities, generator=generator)


def compile_decomposed(module: fx.GraphModule, backward: bool, visible: int, donated: Sequence[int] = ()) -> Any:
    """What Inductor makes of a decomposed graph: a function of one list, whose first `visible` results keep strides.

    A backward may write to its inputs at `donated`. Relies on `compile_fx_inner`, on `user_visible_output_idxs` and
    `bw_donated_idxs`, which it reads, and on a tracing context, without which nothing is cached on disk.
    """
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx_inner

    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [node.meta["val"] for node in placeholders]
    module.graph.output_node().meta["user_visible_output_idxs"] = list(range(visible))
    context = TracingContext(fake_mode_of(inputs))
    if donated:
        context.fw_metadata = cast(Any, _Donations(list(donated)))
        _name_donated(module, [placeholders[k] for k in donated])
    with (
        without_modes(),
        torch.no_grad(),
        tracing(context),
        config.patch(fallback_random=True),
        _best_instructions(),
        together(),
    ):
        return compile_fx_inner(module, inputs, is_backward=backward)


@dataclass(frozen=True)
class _Donations:
    """What Inductor asks of AOTAutograd's metadata."""

    bw_donated_idxs: list[int]
    static_input_indices: Sequence[int] = ()


def _name_donated(module: fx.GraphModule, placeholders: Sequence[fx.Node]) -> None:
    """Inductor's cache knows a graph by its text alone: here the text says which inputs may be overwritten."""
    for k, node in enumerate(placeholders):
        node.target = f"donated_{k}"
        node._rename(node.target)
    module.recompile()


def take_strides(module: fx.GraphModule, strides: Mapping[str, Sequence[int]]) -> None:
    """Let named inputs of a graph have other strides than those they were traced with."""
    for node in module.graph.find_nodes(op="placeholder"):
        val = node.meta["val"]
        if node.name in strides and tuple(strides[node.name]) != val.stride():
            with without_modes(), fake_mode_of([val]):
                node.meta["val"] = torch.empty_strided(val.shape, strides[node.name], dtype=val.dtype)


def strides_given(compiled: Any) -> list[tuple[int, ...] | None]:
    """The strides of each result of what `compile_decomposed` made, where no size varies; None of a number.

    Relies on `output_strides`, by which the forward tells AOTAutograd what its backward is to be compiled for.
    """
    return [None if strides is None else tuple(map(int, strides)) for strides in compiled.output_strides]


def _best_instructions() -> contextlib.AbstractContextManager[None]:
    """Inductor tries every set of vector instructions by compiling a program for it, and takes the best one. Here only
    the best one is tried.
    """
    return _instructions(_best_instruction_set)


@contextlib.contextmanager
def _instructions(known: Callable[[], list[Any]]) -> Iterator[None]:
    """Inductor chooses among these, unless a setting asks for others.

    Relies on `pick_vec_isa`, which takes the first of `valid_vec_isa_list`.
    """
    from torch._inductor import config, cpu_vec_isa

    every = _every_instruction_set()
    if config.cpp.simdlen is None and "ATEN_CPU_CAPABILITY" not in os.environ:
        cpu_vec_isa.valid_vec_isa_list = known
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = every  # not what was there before: another thread may be in here as well


@functools.cache
def _every_instruction_set() -> Callable[[], list[Any]]:
    from torch._inductor import cpu_vec_isa

    return cpu_vec_isa.valid_vec_isa_list


@functools.cache
def _best_instruction_set() -> list[Any]:
    from torch._inductor import cpu_vec_isa

    if platform.machine() not in ("x86_64", "AMD64"):
        return _every_instruction_set()()
    known = set(cpu_vec_isa.x86_isa_checker())
    candidates = (isa for isa in cpu_vec_isa.supported_vec_isa_list if set(str(isa).split()) <= known)
    return list(itertools.islice(filter(bool, candidates), 1))


class Trust:
    """Takes for granted, in a process of our own, that the C++ compiler can make use of what the processor has: asking
    it takes seconds. Should it refuse a program after all, ask it as Inductor does.

    Relies on `VecISA.check_build`, which asks, and on how its answers are remembered.
    """

    def __init__(self) -> None:
        from torch._inductor import cpu_vec_isa

        self._asking = cpu_vec_isa.VecISA.check_build
        self.is_granted = True
        cpu_vec_isa.VecISA.check_build = lambda self, code: True

    def withdraw(self) -> None:
        """From now on the compiler is asked."""
        from torch._inductor import cpu_vec_isa

        self.is_granted = False
        cpu_vec_isa.VecISA.check_build = self._asking
        _forget_instructions()


def _forget_instructions() -> None:
    """What the C++ compiler was found to know is to be found out again."""
    from torch._inductor import cpu_vec_isa

    for kind in (cpu_vec_isa.VecISA, *_kinds_below(cpu_vec_isa.VecISA)):
        for method in vars(kind).values():
            getattr(method, "cache_clear", lambda: None)()
    _best_instruction_set.cache_clear()


def _kinds_below(kind: type) -> list[type]:
    return [found for below in kind.__subclasses__() for found in (below, *_kinds_below(below))]


def compile_header() -> None:
    """Have torch's headers precompiled, if they are not: the first kernels on a machine would wait for it."""
    with _best_instructions():
        empty_library()


def write_whole_files() -> None:
    """From now on what the C++ compiler writes has its name once it is complete: this process may be ended any time.

    Relies on `run_compile_cmd`, of a command line and a directory, with which everything is compiled.
    """
    from torch._inductor import cpp_builder

    plain = cpp_builder.run_compile_cmd

    def run(cmd_line: str, cwd: str) -> None:
        words = shlex.split(cmd_line)
        place = words.index("-o") + 1
        target, words[place] = words[place], f"{words[place]}.{os.getpid()}-{threading.get_ident()}"
        plain(shlex.join(words), cwd)
        os.replace(words[place], target)

    cpp_builder.run_compile_cmd = run


def is_refusal(problem: BaseException | None) -> bool:
    """Did the C++ compiler refuse a program? Relies on Inductor's error, which others may be raised from."""
    from torch._inductor.exc import CppCompileError

    while problem is not None and not isinstance(problem, CppCompileError):
        problem = problem.__cause__ or getattr(problem, "inner_exception", None)
    return problem is not None


def min_cut(
    joint: fx.GraphModule, inputs: int, outputs: int, static: Sequence[int], freely: bool = False
) -> list[fx.GraphModule]:
    """A joint graph cut into forward and backward by functorch, which recomputes what kernels compute on the way.

    Its first `inputs` inputs and `outputs` results are the forward's; inputs at `static` live anyway. Views are not
    saved: a tensor that shares memory with another one, unknown to autograd, would escape its version checks. `freely`
    also recomputes what a forward reads long after it was made, or makes in many small steps. Relies on how the
    partitioner tells inputs from cotangents, by name, and on its settings; the joint graph may be cut once more.
    """
    from torch._functorch import config, partitioners

    nodes = joint.graph.find_nodes(op="placeholder")
    for k, node in enumerate(nodes):
        node.target = f"primals_{k + 1}" if k < inputs else f"tangents_{k - inputs + 1}"
        node._rename(node.target)
    joint.recompile()
    values = [node.meta["val"] for node in nodes]
    bans: dict[str, Any] = {"ban_recompute_used_far_apart": False, "ban_recompute_long_fusible_chains": False}
    settings = config.patch(recompute_views=True, **(bans if freely else {}))
    with without_modes(), tracing(TracingContext(fake_mode_of(values))), settings:
        return list(
            partitioners.min_cut_rematerialization_partition(
                joint, values, num_fwd_outputs=outputs, static_lifetime_input_indices=list(static)
            )
        )


@dataclass(frozen=True)
class Artifact:
    """What Inductor compiled, as one process hands it to another. Its kernels lie in Inductor's cache."""

    data: bytes  # with the vector instructions that its kernels use
    allocates_much: bool
    code: Code | None

    @classmethod
    def of(cls, compiled: Any) -> Artifact:
        """Relies on `prepare_for_serialization`, with which Inductor fills its own cache."""
        from torch._inductor import cpu_vec_isa

        compiled.prepare_for_serialization()
        with _best_instructions():
            data = pickle.dumps((compiled, cpu_vec_isa.pick_vec_isa()))
        return cls(data, allocates_much(compiled.source_code), Code.of(compiled))

    def load(self) -> Callable[[list[Any]], Any]:
        """The function, of one list."""
        call = self._call()
        call = with_large_pages(call) if self.allocates_much else call
        return cast(Any, torch.compiler.disable(call))  # Dynamo may look on, and would trace it

    def _call(self) -> Callable[[list[Any]], Any]:
        """Without Inductor if possible. Relies on `after_deserialization`, with which Inductor reads its own cache."""
        if self.code is not None:
            with contextlib.suppress(OSError, ImportError):  # then kernels are compiled again
                return self.code.load()
        from torch._inductor.output_code import CompiledFxGraphConstants

        register_kernels()
        compiled, instructions = pickle.loads(self.data)
        with together(), _instructions(lambda: [instructions]):
            compiled.after_deserialization(CompiledFxGraphConstants())
        return compiled.current_callable


def inductor_directory() -> str:
    """Where Inductor keeps its kernels. Relies on `cache_dir`."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return cache_dir()


def circumstances_of_inductor() -> str:
    """What else decides what Inductor makes of a graph: settings, the processor, and the directory with its kernels.

    The directory is known by a file in it: it may have been removed since. Relies on where Inductor keeps its cache.
    """
    from torch._inductor import cpu_vec_isa

    settings = sorted(item for item in os.environ.items() if item[0].startswith(("TORCHINDUCTOR_", "ATEN_", "CXX")))
    return f"{settings} {cpu_vec_isa.x86_isa_checker()} {_name_of(inductor_directory())}"


def _name_of(directory: str) -> str:
    path = os.path.join(directory, "tapeless-name")
    with contextlib.suppress(FileExistsError), open(path, "x") as file:
        file.write(f"{directory} {uuid.uuid4()}")
    with open(path) as file:
        return file.read()


def symbolic_sizes(hints: dict[str, int]) -> tuple[FakeTensorMode, dict[str, Any]]:
    """A fake mode, and a symbolic size in it for each name. Relies on how Dynamo makes its symbols."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    environment = ShapeEnv()
    found = {}
    for name, hint in hints.items():
        source = ConstantSource(name)
        symbol = environment.create_symbol(hint, source, DimDynamic.DYNAMIC)
        found[name] = environment.create_symintnode(symbol, hint=hint, source=source)
    return FakeTensorMode(shape_env=environment), found


def restrided(example: Any, arg: Any) -> Any:
    """The fake tensor with the strides of a real one, which are sizes multiplied up where sizes are symbolic."""
    if not isinstance(example, torch.Tensor):
        return example
    strides = arg.stride()
    if any(isinstance(n, torch.SymInt) for n in (*example.shape, *example.stride())):
        strides = _dense_strides(example.shape, arg)
    if strides is None or tuple(map(str, example.stride())) == tuple(map(str, strides)):
        return example
    with without_modes(), fake_mode_of([example]):
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


def guards_on(fake_mode: FakeTensorMode, sizes: Sequence[Any]) -> str | None:
    """What compilation took for granted about symbolic `sizes`, as text for `holds`.

    Relies on `produce_guards_expression`, which Inductor keeps beside what it caches for the same purpose.
    """
    environment = fake_mode.shape_env
    return environment.produce_guards_expression(sizes) if sizes and environment is not None else None


def holds(guards: str | None) -> Callable[[Sequence[int]], bool]:
    """Does it hold of these sizes?"""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    if guards is None:
        return lambda sizes: True
    code = compile(guards, "<guards>", "eval")
    return lambda sizes: eval(code, SYMPY_INTERP, {"L": {f"t{k}": size for k, size in enumerate(sizes)}})
