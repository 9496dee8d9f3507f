"""Inductor's kernels compiled together, a few at a time, instead of each by itself.

Most of what the C++ compiler does for a kernel it does for torch's headers and their templates, again for the next one.
See docs/decisions/0028-kernels-together.md.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

MOST = 16  # kernels of a library: more of them are compiled side by side

_places: dict[str, Place] = {}  # of what was compiled in this process, by its source
_INCLUDE = re.compile(r"^[ \t]*#include .*$", re.MULTILINE)
_here = threading.local()  # `unit`: what this thread puts its kernels into


@dataclass(frozen=True)
class Place:
    """Where a kernel is: a library, and the module in it."""

    path: str
    name: str


class Unit:
    """The kernels of a module that Inductor has generated. Whoever needs the first one has all of them compiled."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._modules: dict[str, ModuleType] | None = None
        self._lock = threading.Lock()

    def add(self, source: str) -> Callable[[], ModuleType]:
        """A kernel with its bindings; the module in which it is found once it is compiled."""
        self.asked.append(source)
        return lambda: self.compiled()[source]

    def compiled(self) -> dict[str, ModuleType]:
        """The modules by their sources. No more of these are taken."""
        if getattr(_here, "unit", None) is self:
            _here.unit = Unit()
        with self._lock:
            if self._modules is None:
                self._modules = _modules_of(list(dict.fromkeys(self.asked)))
            return self._modules


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Inside, in this thread, kernels of one module are compiled together.

    Relies on modules that ask for all of their kernels before they wait for any, which takes more than one thread that
    compiles by Inductor's settings; none is started.
    """
    from torch._inductor import config

    _intercept()
    before, _here.unit = getattr(_here, "unit", None), Unit()
    with config.patch(compile_threads=max(2, config.compile_threads or 2)):
        try:
            yield
        finally:
            _here.unit = before


@contextlib.contextmanager
def kernels_later(compilers: int) -> Iterator[None]:
    """Inside, Inductor goes on while so many C++ compilers are at work; at the end everything is waited for.

    What was compiled inside cannot be called before. Relies on `AsyncCompile.wait`, with which generated modules end.
    """
    from torch._inductor.async_compile import AsyncCompile

    wait, begun = AsyncCompile.wait, []

    def begin(self: AsyncCompile, scope: dict[str, Any]) -> None:
        unit = getattr(_here, "unit", None)
        begun.append((pool.submit(unit.compiled) if unit else None, self, scope))
        if unit:
            _here.unit = Unit()

    AsyncCompile.wait = begin
    with ThreadPoolExecutor(compilers) as pool:
        try:
            yield
        finally:
            AsyncCompile.wait = wait
        for compiled, kernels, scope in begun:
            if compiled is not None:
                compiled.result()
            wait(kernels, scope)


def places_of(kernels: Sequence[tuple[Sequence[str], str]]) -> tuple[Place, ...]:
    """Where kernels are, which are given by the types of their arguments and their source. KeyError if nowhere.

    Relies on `load_pybinding_async`, which adds bindings to the source.
    """
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    _intercept()
    before, _here.unit = getattr(_here, "unit", None), Unit()
    try:
        for argtypes, source in kernels:
            CppPythonBindingsCodeCache.load_pybinding_async(argtypes, source)
        return tuple(_places[source] for source in _here.unit.asked)
    finally:
        _here.unit = before


def empty_library() -> None:
    """Compile and load a library without kernels."""
    _library(_joined([]))


def _modules_of(sources: Sequence[str]) -> dict[str, ModuleType]:
    parts = [sources[k : k + MOST] for k in range(0, len(sources), MOST)]
    if len(parts) < 2:
        return _part(sources)
    found: dict[str, ModuleType] = {}
    with ThreadPoolExecutor(min(len(parts), os.cpu_count() or 1)) as pool:
        for modules in pool.map(_part, parts):
            found |= modules
    return found


def _part(sources: Sequence[str]) -> dict[str, ModuleType]:
    """Some kernels as one library; each by itself, if the compiler refuses them together."""
    from torch._inductor.exc import CppCompileError

    if len(sources) > 1:
        with contextlib.suppress(CppCompileError):
            library = _library(_joined(sources))
            names = {source: f"kernel_{k}" for k, source in enumerate(sources)}
            _places.update({source: Place(str(library.__file__), name) for source, name in names.items()})
            return {source: getattr(library, name) for source, name in names.items()}
    modules = {source: _library(source) for source in sources}
    _places.update({source: Place(str(module.__file__), "kernel") for source, module in modules.items()})
    return modules


def _library(source: str) -> ModuleType:
    """A source as Inductor compiles and loads it; found on disk, if it was compiled before."""
    return _load_async()(source, "cpu")()


@functools.cache
def _load_async() -> Callable[..., Callable[[], ModuleType]]:
    """Relies on `CppPythonBindingsCodeCache.load_async`, through which every kernel for the CPU is compiled."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    return CppPythonBindingsCodeCache.load_async


@functools.cache
def _intercept() -> None:
    """Have kernels put into the unit of the thread that asks for them, if it has one."""
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    plain = _load_async()

    def load_async(cls: Any, main_code: str, device_type: str = "cpu", **settings: Any) -> Callable[[], ModuleType]:
        unit = getattr(_here, "unit", None)
        special = any(value for name, value in settings.items() if name != "submit_fn")
        if unit is None or device_type != "cpu" or special or cls is not CppPythonBindingsCodeCache:
            return plain.__func__(cls, main_code, device_type, **settings)  # type: ignore[attr-defined]
        return unit.add(main_code)

    CppPythonBindingsCodeCache.load_async = classmethod(load_async)


def _joined(sources: Sequence[str]) -> str:
    """One source of several: a module with a module `kernel_k` in it for each of them.

    Relies on their form: headers, the function `kernel`, bindings, and `PyInit_kernel`, which makes the module.
    """
    headers = dict.fromkeys(line.strip() for source in sources for line in _INCLUDE.findall(source))
    first = ["#include <torch/csrc/inductor/cpp_prefix.h>", "#define PY_SSIZE_T_CLEAN", "#include <Python.h>"]
    bodies = [_unit_of_source(k, _INCLUDE.sub("", source)) for k, source in enumerate(sources)]
    made = [
        f'    if (PyModule_AddObject(found, "kernel_{k}", unit_{k}::PyInit_kernel_{k}()) < 0) return nullptr;'
        for k in range(len(sources))
    ]
    return "\n".join([*dict.fromkeys([*first, *headers]), *bodies, _MODULE % "\n".join(made)])


def _unit_of_source(k: int, body: str) -> str:
    names = ("kernel", "PyInit_kernel")
    defined = [f"#define {name} {name}_{k}" for name in names]
    return "\n".join([*defined, f"namespace unit_{k} {{", body, "}", *(f"#undef {name}" for name in names)])


_MODULE = """
static struct PyModuleDef kernels = {PyModuleDef_HEAD_INIT, "kernel", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_kernel(void) {
    PyObject* found = PyModule_Create(&kernels);
    if (found == NULL) return NULL;
%s
    return found;
}
"""
