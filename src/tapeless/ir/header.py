"""What a printed program needs in front of it: imports, and the helpers that it calls."""

from __future__ import annotations

import inspect

from tapeless.ir import loops

IMPORTS = """\
import operator
import torch
from torch import device, inf, nan
aten = torch.ops.aten
"""

ACCUMULATE = """
def accumulate(a, b):
    return b if a is None else a if b is None else a + b
"""

LOOPS = "".join(f"\n{inspect.getsource(f)}" for f in (loops.run_scan, loops.run_while, loops.stack_up))


def header(body: str) -> str:
    """The text in front of `body`; pasted together in a file, both run."""
    has_loops = "run_scan(" in body or "run_while(" in body
    return "".join([
        "import math\n" if "= math." in body else "",
        IMPORTS,
        "from tapeless.ir import kernels\n" if "= kernels." in body else "",
        "from tapeless.ir.opaque import AutogradVjp\n" if "AutogradVjp(" in body else "",
        ACCUMULATE if has_loops or "accumulate(" in body else "",
        LOOPS if has_loops else "",
    ])  # fmt: skip
