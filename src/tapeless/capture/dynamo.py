"""The `torch.compile` entry: backend="tapeless"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import fx

from tapeless import torch_internals
from tapeless.capture.frames import watching
from tapeless.options import Options


def backend(
    module: fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """What `torch.compile(model, backend="tapeless", options={...})` calls with each graph that Dynamo captures."""
    from tapeless.pipeline import build  # the only stage that sees all others

    return build(module, inputs, Options.parse(options))


def _rebuilt(digest: str, inputs: Sequence[Any], options: Options) -> Callable[..., Any] | None:
    from tapeless.pipeline import rebuilt

    return rebuilt(digest, inputs, options)


torch_internals.on_frames(watching(backend, _rebuilt))
