"""Frames as Dynamo compiles them: what it made of one as data, and the same put to use in another process.

Dynamo asks here first, for frames that are compiled with a backend of ours: `on_frames`.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
import marshal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any, Protocol, cast

import torch
from torch import fx
from torch._dynamo import convert_frame, guards, pgo
from torch._dynamo.bytecode_transformation import unique_id
from torch._dynamo.cache_size import exceeds_recompile_limit
from torch._dynamo.convert_frame import DynamoOutput
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.types import GuardedCode, wrap_guarded_code
from torch._dynamo.utils import CleanupHook, CleanupManager, counters, orig_code_map
from torch._guards import Source, TracingContext, tracing
from torch._logging._internal import log_state
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from tapeless.torch_internals.dynamo import CapturingAutograd
from tapeless.torch_internals.guards import (
    BUILTINS,
    STATIC,
    Guarded,
    Scope,
    Unrepeatable,
    check_function,
    portable,
    root_of,
)

COMPILED = "__compiled_fn_tapeless"  # stands for the compiled graph in bytecode that is kept
USES_GLOBAL = ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME")
Sizes = dict[Any, dict[str, Any]]


@dataclass(frozen=True)
class Frame:
    """A call that Dynamo is about to compile."""

    code: CodeType
    globals: dict[str, Any]
    locals: dict[str, Any]
    closure: Any
    backend: Callable[..., Any]
    options: Mapping[str, Any]
    whole: bool  # must it be one graph?
    compile_id: Any

    def scope(self, imports: Mapping[str, str]) -> Scope:
        return Scope(self.locals, self.globals, imports)


class Watcher(Protocol):
    """Who is asked before Dynamo traces a frame, and told afterwards."""

    def replay(self) -> Any: ...

    def record(self, tracing: Callable[[tuple[Source, ...]], Tracing]) -> None: ...


@dataclass(frozen=True)
class Tracing:
    """What Dynamo made of a frame, besides its one graph."""

    bytecode: bytes
    guards: tuple[Guarded, ...]
    left_out: tuple[Guarded, ...]  # guards that Dynamo does without, because what they look at lasts for a process
    inputs: tuple[Source, ...]  # of the graph
    ordered: tuple[Source, ...]  # dictionaries that are guarded with the order of their keys
    shapes: dict[Source, Any]
    imports: dict[str, str]  # modules that guards begin with, by Dynamo's names for them
    files: tuple[str, ...]  # where the code that was traced stands
    sizes: Sizes  # what was seen of sizes that may turn out to vary; under None, of the frame itself

    @classmethod
    def of(cls, made: DynamoOutput, compiling: Compiling, inputs: tuple[Source, ...]) -> Tracing:
        """Relies on what an `OutputGraph` knows when guards are made of it."""
        output: Any = made.tracer_output.output_graph
        frame = compiling.frame
        _refuse_special(output)
        names = _aliases(frame, output)
        foreign = output.installed_globals - set(names)
        sources = (
            tuple(map(Guarded.of, sorted(output.guards))), tuple(map(Guarded.left_out, compiling.skipped)), inputs,
            tuple(output.guard_on_key_order), dict(output.input_source_to_sizes_strides),
        )  # fmt: skip
        asked, left_out, inputs, ordered, shapes = portable(sources, names)
        if any(root_of(source) in foreign for source in (*(g.source for g in (*asked, *left_out)), *inputs, *ordered)):
            raise Unrepeatable("a guard on an object that Dynamo named by its address")
        codes = (frame.code, *output.tracing_context.traced_code)
        return cls(
            bytecode=_portable(made.bytecode, foreign, names),
            guards=asked,
            left_out=left_out,
            inputs=inputs,
            ordered=ordered,
            shapes=shapes,
            imports={**output.import_sources, **_modules(frame, output)},
            files=tuple(sorted({code.co_filename for code in codes})),
            sizes=_sizes_since(compiling.before, frame),
        )

    def restored(self, frame: Frame, scope: Scope, compiled: Callable[..., Any]) -> Any:
        """What Dynamo is to run for such frames; None if the frame does not pass the guards.

        Relies on what `convert_frame._compile` does with a graph that its backend returned.
        """
        frame.globals.update(scope.added)
        manager = check_function(frame.code, frame.locals, frame.globals, self.guards, self.ordered, self.shapes)
        if manager is None:
            return None
        name = unique_id("__compiled_fn", with_uuid=True)
        code = _renamed(marshal.loads(self.bytecode), {COMPILED: name})
        hidden = torch._dynamo.disable(compiled, reason="do not trace Dynamo-compiled graph")
        CleanupManager.instance[code] = [CleanupHook.create(frame.globals, name, hidden)]
        orig_code_map[code] = frame.code
        convert_frame.output_codes.add(code)
        _see(self.sizes, frame)
        counters["stats"]["unique_graphs"] += 1
        return wrap_guarded_code(
            GuardedCode(code, manager, frame.compile_id, f"Torch-Compiled Region: {frame.compile_id}")
        )


def _refuse_special(output: Any) -> None:
    """Refuse symbolic sizes that anything depends on, and all for which the graph is wrapped in more than bytecode."""
    env = output.shape_env
    sizes = [n for shape in output.input_source_to_sizes_strides.values() for n in (*shape["size"], *shape["stride"])]
    shaped = any(guard.create_fn_name() == "SHAPE_ENV" and guard.code_list for guard in output.guards)
    if env.guards or env.replacements or env.deferred_runtime_asserts or env.specializations or shaped:
        raise Unrepeatable("symbolic sizes")
    if not all(type(n) is int for n in sizes):
        raise Unrepeatable("symbolic sizes")
    if output.aotautograd_guards or output.torch_function_subclass_inlined or output.saved_tensors_hooks_subgraph_names:
        raise Unrepeatable("guards of AOTAutograd, subclasses or hooks")


def _aliases(frame: Frame, output: Any) -> dict[str, str]:
    """Names that Dynamo has installed in this process → what they are called in every process."""
    modules = {name: frame.globals[name] for name in output.installed_globals}
    named = {name: _alias(value) for name, value in modules.items() if isinstance(value, ModuleType)}
    return {**named, output.name_of_builtins_dict_key_in_fglobals: BUILTINS}


def _modules(frame: Frame, output: Any) -> dict[str, str]:
    values = [frame.globals[name] for name in output.installed_globals]
    return {_alias(value): value.__name__ for value in values if isinstance(value, ModuleType)}


def _alias(module: ModuleType) -> str:
    return f"__import_{module.__name__.replace('.', '_dot_')}"  # as Dynamo calls those that it imports


def _portable(code: CodeType, foreign: set[str], names: dict[str, str]) -> bytes:
    """Bytecode with one compiled graph, which has a fixed name in it, and with no other object of this process."""
    used = {ins.argval for part in _parts(code) for ins in dis.get_instructions(part) if ins.opname in USES_GLOBAL}
    graphs = [name for name in used if name.startswith("__compiled_fn")]
    if len(graphs) != 1 or (used & foreign) - set(graphs):
        raise Unrepeatable("not one graph, or an object that Dynamo named by its address")
    try:
        return marshal.dumps(_renamed(code, {graphs[0]: COMPILED, **names}))
    except ValueError as problem:
        raise Unrepeatable("bytecode that holds an object") from problem


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    consts = tuple(_renamed(c, names) if isinstance(c, CodeType) else c for c in code.co_consts)
    return code.replace(co_names=tuple(names.get(name, name) for name in code.co_names), co_consts=consts)


def input_sources(module: fx.GraphModule) -> tuple[Source, ...]:
    """Where the inputs of a Dynamo graph come from. Relies on `grapharg`, which Dynamo leaves at placeholders."""
    args = [node.meta.get("grapharg") for node in module.graph.nodes if node.op == "placeholder"]
    if any(arg is None or arg.source is None or arg.pass_arg_as_tensor for arg in args):
        raise Unrepeatable("an input that is no variable of the program")
    return tuple(arg.source for arg in args if arg)


def static_mark(value: Any) -> str | None:
    """How Dynamo has marked a tensor of a module. Relies on the attribute that it sets."""
    return getattr(value, STATIC, None)


def mark_static(value: Any, mark: str | None) -> None:
    """Mark a tensor as Dynamo would have while tracing."""
    if mark is not None:
        setattr(value, STATIC, mark)


@contextmanager
def as_while_compiling() -> Iterator[None]:
    """The context in which Dynamo calls a backend. Relies on `TracingContext` and the fake mode in it."""
    with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
        yield


# -- sizes that may turn out to vary -------------------------------------------------------------------------------


def _sizes() -> Sizes:
    """Relies on `pgo.get_code_state`: per function that was traced, the sizes that each of its values had."""
    return {code: copy.deepcopy(dict(seen.automatic_dynamic)) for code, seen in pgo.get_code_state().items()}


def _sizes_since(before: Sizes, frame: Frame) -> Sizes:
    """What tracing this frame has seen, by functions that another process can name."""
    own = pgo.CodeId.make(frame.code, frame.closure)
    found = {code: seen for code, seen in _sizes().items() if seen and seen != before.get(code)}
    return {None if code == own else code: seen for code, seen in found.items() if code == own or not code.closure_hash}


def _see(sizes: Sizes, frame: Frame) -> None:
    for code, seen in sizes.items():
        state = pgo.get_code_state()[code or pgo.CodeId.make(frame.code, frame.closure)].automatic_dynamic
        for name, entry in seen.items():
            state[name] |= entry


# -- being asked ---------------------------------------------------------------------------------------------------

_compile = convert_frame._compile
_build_guards = DynamoOutput.build_guards
_is_left_out = guards.is_from_skip_guard_source
_parameters = inspect.signature(_compile)
_begin: list[Callable[[Frame], Watcher | None]] = []


class Compiling:
    """A frame that is being compiled, and who watches."""

    def __init__(self, frame: Frame, watcher: Watcher) -> None:
        self.frame, self.watcher, self.before = frame, watcher, _sizes()
        self.skipped: dict[Source, None] = {}


class _Watching(threading.local):
    """The frames that this thread is compiling, innermost last; None where nobody watches."""

    def __init__(self) -> None:
        self.frames: list[Compiling | None] = []

    @property
    def current(self) -> Compiling | None:
        return self.frames[-1] if self.frames else None


_watching = _Watching()


def on_frames(begin: Callable[[Frame], Watcher | None]) -> None:
    """From now on, `begin` is shown every frame that Dynamo is about to compile; it may have it watched.

    Relies on `convert_frame._compile`, by which Dynamo compiles a frame, on `DynamoOutput.build_guards`, the step of it
    that makes guards, and on `is_from_skip_guard_source`, which Dynamo asks before it leaves a guard out. Frames that
    are not watched are compiled as if this was not there.
    """
    _begin.append(begin)
    convert_frame._compile = _compile_watched
    DynamoOutput.build_guards = cast(Any, _build_guards_watched)
    guards.is_from_skip_guard_source = _is_left_out_watched


def watcher() -> Watcher | None:
    """Who watches the frame that is being compiled, if it is watched."""
    return _watching.current.watcher if _watching.current else None


@functools.wraps(_compile)
def _compile_watched(*args: Any, **kwargs: Any) -> Any:
    frame = _frame(_parameters.bind(*args, **kwargs).arguments)
    watcher = next((found for begin in _begin if (found := begin(frame))), None) if frame else None
    found = watcher.replay() if watcher else None
    if found is not None:
        return found
    _watching.frames.append(Compiling(frame, watcher) if frame and watcher else None)
    try:
        return _compile(*args, **kwargs)
    finally:
        _watching.frames.pop()


def _build_guards_watched(made: DynamoOutput, code: CodeType, *args: Any, **kwargs: Any) -> Any:
    found, compiling = _build_guards(made, code, *args, **kwargs), _watching.current
    if compiling and compiling.frame.code is code:
        compiling.watcher.record(functools.partial(Tracing.of, made, compiling))
    return found


def _is_left_out_watched(source: Source) -> bool:
    left_out = _is_left_out(source)
    if left_out and _watching.current:
        _watching.current.skipped[source] = None
    return left_out


def _frame(given: dict[str, Any]) -> Frame | None:
    """The frame, if nothing is asked of Dynamo but to compile it."""
    hooks = given["hooks"]
    asked = (hooks.guard_export_fn, hooks.guard_fail_fn, hooks.guard_filter_fn, given.get("package"))
    if (
        given["export"]
        or any(asked)
        or _logged()
        or exceeds_recompile_limit(given["cache_size"], given["compile_id"])[0]
    ):
        return None
    backend, options = _backend(given["compiler_fn"])
    whole, compile_id = given["one_graph"], given["compile_id"]
    scopes = given["globals"], given["locals"], given["closure"]
    return Frame(given["code"], *scopes, backend, options, whole, compile_id)


def _logged() -> bool:
    """Is a log of Dynamo's being written? It tells of tracing. Relies on what `TORCH_LOGS` sets."""
    return bool(log_state.artifact_names or log_state.log_qname_to_level)


def _backend(compiler: Callable[..., Any]) -> tuple[Callable[..., Any], Mapping[str, Any]]:
    """The backend and its options. Relies on what `torch.compile` wraps around a backend."""
    inner: Any = innermost_backend(compiler)
    if isinstance(inner, torch._TorchCompileWrapper):
        plain = set(inner.kwargs) <= {"options"}
        return (inner.compiler_fn if plain else compiler), inner.kwargs.get("options", {})
    if isinstance(inner, CapturingAutograd):
        return inner.function, dict(inner.options)
    return inner, {}
