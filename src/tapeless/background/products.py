"""Who multiplies: torch as it was built, or oneDNN, whichever is found to be faster on this machine.

Each kind of product is timed once on each machine. What was found lies beside Inductor's kernels, which depend on it:
were it found anew by every process, chance would now and then have a program compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import statistics
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from tapeless import torch_internals
from tapeless.cache.store import Store

Tensor = torch.Tensor

FEWEST = 2_000_000  # multiplications of a product; of fewer, the call of oneDNN alone takes too long
MOST = 300_000_000  # that are timed: a larger product is taken for a part of it
GAIN = 0.97  # the part of torch's time that oneDNN may take, for rounding changes with it
ROUNDS = 9  # at most
SCRATCH = 700_000  # bytes that oneDNN takes for a product, at most, if one thread works
CLEAR = 3  # rounds that are enough if they agree
SECONDS = 0.003  # that a product takes at least, repeated, while it is timed

_lock = threading.Lock()


def prefer_faster_products(module: fx.GraphModule, except_at: Collection[fx.Node] = ()) -> None:
    """Let oneDNN multiply in a decomposed graph wherever it is faster."""
    torch_internals.replace_products(module, _is_faster, except_at)


def _is_faster(a: Tensor, b: Tensor) -> bool:
    if not _suits(a, b):
        return False
    sizes = _part([*a.shape, b.shape[-1]])
    kind = "x".join(map(str, sizes)) + ("t" if _is_transposed(a) else "n") + ("t" if _is_transposed(b) else "n")
    with _lock:
        found = _Findings.here()
        if kind not in found.ratios:
            found.keep(kind, _ratio(sizes, _is_transposed(a), _is_transposed(b)))
        return found.ratios[kind] < GAIN


def _suits(a: Tensor, b: Tensor) -> bool:
    """Is it a large product of float32, of matrices that lie in memory without gaps, by rows or by columns?"""
    sizes = [*a.shape, b.shape[-1]]
    if a.dtype is not torch.float32 or b.dtype is not torch.float32 or not all(isinstance(n, int) for n in sizes):
        return False
    return min(sizes) > 1 and math.prod(sizes) >= FEWEST and all(_is_dense(x) for x in (a, b))


def _is_dense(x: Tensor) -> bool:
    return x.device.type == "cpu" and (x.is_contiguous() or _is_transposed(x))


def _is_transposed(x: Tensor) -> bool:
    return not x.is_contiguous() and x.mT.is_contiguous()


def _part(sizes: list[int]) -> list[int]:
    """Half of the largest size, until it is soon timed."""
    while math.prod(sizes) > MOST:
        largest = sizes.index(max(sizes))
        sizes = [n // 2 if k == largest else n for k, n in enumerate(sizes)]
    return sizes


def _ratio(sizes: list[int], a_is_transposed: bool, b_is_transposed: bool) -> float:
    """The time that oneDNN's product takes for each second of torch's.

    They take turns, and a ratio is taken in each round: what slows the machine down for a while slows both down. The
    first rounds are enough if all of them say the same.
    """
    *batch, m, k, n = sizes
    a = torch.ones(*batch, k, m).mT if a_is_transposed else torch.ones(*batch, m, k)
    b = torch.ones(*batch, n, k).mT if b_is_transposed else torch.ones(*batch, k, n)
    out, theirs = torch.empty(*batch, m, n), torch.bmm if batch else torch.mm
    ways: list[Callable[[], Any]] = [lambda: theirs(a, b, out=out), lambda: torch_internals.product(a, b, out=out)]
    with torch.no_grad():
        times = max(1, round(SECONDS / max(*(_timed(way, 2) for way in ways), 1e-6)))
        ratios: list[float] = []
        while len(ratios) < ROUNDS and not _is_clear(ratios):
            plain, with_onednn = (_timed(way, times) for way in ways)
            ratios.append(with_onednn / plain)
    return statistics.median(ratios)


def _is_clear(ratios: Sequence[float]) -> bool:
    return len(ratios) >= CLEAR and (max(ratios) < GAIN or min(ratios) >= GAIN)


def _timed(way: Callable[[], Any], times: int) -> float:
    now = time.perf_counter if torch.get_num_threads() > 1 else time.thread_time
    start = now()
    for _ in range(times):
        way()
    return max(now() - start, 1e-9) / times


class _Findings:
    """What was found on this machine, with so many threads: for each kind of product a ratio. On disk as well."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self.ratios: dict[str, float] = store.read(key, json.loads) or {}

    def keep(self, kind: str, ratio: float) -> None:
        self.ratios[kind] = ratio
        self._store.write(self._key, json.dumps(self.ratios).encode())

    @staticmethod
    def here() -> _Findings:
        """Those for how torch multiplies now."""
        directory = Path(torch_internals.inductor_directory(), "tapeless")
        return _findings(directory, torch.get_num_threads(), torch.get_float32_matmul_precision())


@functools.cache
def _findings(directory: Path, threads: int, precision: str) -> _Findings:
    machine = (torch.__version__, torch.backends.cpu.get_cpu_capability(), _processor(), threads, precision)
    key = hashlib.sha256(repr(machine).encode()).hexdigest()[:32]
    return _Findings(Store(directory), f"products-{key}")


def _processor() -> list[str]:
    """What Linux says of the first processor, but for what changes while it runs."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return []
    return [line for line in lines if line.startswith(("vendor_id", "cpu family", "model", "stepping", "flags"))]
