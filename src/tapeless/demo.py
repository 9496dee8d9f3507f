"""`tapeless demo`: a program with its printed backward, and a transformer trained next to eager and `aot_eager`."""

from __future__ import annotations

import copy
import inspect
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from tapeless.api import differentiate

VARIANTS = ("eager", "aot_eager", "tapeless")
# Nothing left by an earlier run, and nothing compiled in the background while the others are timed.
OPTIONS: dict[str, dict[str, Any]] = {"tapeless": {"backend": "python", "cache": False}}
WARMUP = 5


def two_heads(x, w, a, b):
    trunk = torch.tanh(x @ w)
    return trunk @ a, torch.relu(trunk @ b)


def run(steps: int = 30) -> None:
    """The whole demonstration."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is small, and a busy machine shares its cores badly
    console = _console()
    show_program(console)
    train(console, max(steps, WARMUP + 1))


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=120)


# -- a program and its backward ------------------------------------------------------------------------------------


def show_program(console: Console) -> None:
    """A small program, its forward and backward, and the backward that is left when one head goes unused."""
    sizes = [(4, 3), (3, 8), (8, 2), (8, 1)]
    examples = [torch.randn(size, requires_grad=index > 0) for index, size in enumerate(sizes)]
    _title(console, "A program with two heads")
    _python(console, inspect.getsource(two_heads))
    gradient = differentiate(two_heads, *examples)
    _title(console, "its forward")
    _python(console, str(gradient.forward))
    _title(console, "its backward")
    _python(console, str(gradient.backward))
    _title(console, "its backward when the loss uses the first head alone")
    _python(console, str(differentiate(two_heads, *examples, undefined=(1,)).backward))


def _title(console: Console, title: str) -> None:
    console.print(f"\n[bold]# --- {title} ---[/bold]\n")


def _python(console: Console, source: str) -> None:
    """Highlighted on a terminal; as it stands elsewhere, so that it can be pasted in a file."""
    if console.is_terminal:
        console.print(Syntax(source.strip(), "python", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        print(source.strip(), file=console.file)


# -- a transformer -------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention and a two-layer perceptron, each around a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """A causal language model with a second head, which the loss below does not use."""

    def __init__(self, vocabulary: int = 32, length: int = 32, width: int = 64, heads: int = 4, depth: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head, self.unused_head = nn.Linear(width, vocabulary), nn.Linear(width, 1)

    def forward(self, text: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(text.shape[1], device=text.device)
        x = self.blocks(self.tokens(text) + self.positions(places))
        return self.head(x), self.unused_head(x)


def batch(size: int = 8, length: int = 32, vocabulary: int = 32) -> Tensor:
    """Sequences that count upwards from a random token by a random stride: easy to learn, not constant."""
    start, stride = torch.randint(vocabulary, (size, 1)), torch.randint(1, 4, (size, 1))
    return (start + stride * torch.arange(length + 1)) % vocabulary


@dataclass
class Run:
    """One way to train the model, and what was seen of it."""

    name: str
    model: nn.Module
    call: Callable[..., Any]
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    first_gradients: dict[str, Tensor | None] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, model: nn.Module) -> Run:
        model = copy.deepcopy(model)
        call = model if name == "eager" else torch.compile(model, backend=name, options=OPTIONS.get(name))
        return cls(name, model, call, torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1))

    def step(self, text: Tensor) -> None:
        started = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        logits, _ = self.call(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        self.optimizer.step()
        self.seconds.append(time.perf_counter() - started)
        self.losses.append(loss.item())
        if len(self.losses) == 1:
            self.first_gradients = {name: p.grad for name, p in self.model.named_parameters()}


def train(console: Console, steps: int) -> None:
    """Train three copies of one model, taking turns step by step, and compare them."""
    _title(console, f"A transformer trained for {steps} steps with torch.compile(model, backend=...)")
    for name in VARIANTS:  # what torch imports on first use should count for none of them
        Run.of(name, Transformer(length=4, width=4, depth=1)).step(batch(1, 4))
    torch.compiler.reset()
    model = Transformer()
    runs = [Run.of(name, model) for name in VARIANTS]
    for _ in range(steps):
        text = batch()
        for entry in runs:
            entry.step(text)
    console.print(_table(runs, model))
    console.print(
        "One thread, taking turns; `step` is the median after the first five. `unused_head` does not reach the loss:"
    )
    console.print("eager leaves its gradient undefined, and AdamW, with weight decay, leaves its weights alone.")


def _table(runs: list[Run], initial: nn.Module) -> Table:
    table = Table("", *(entry.name for entry in runs))
    rows: dict[str, Callable[[Run], str]] = {
        "loss, first → last step": lambda entry: f"{entry.losses[0]:.4f} → {entry.losses[-1]:.4f}",
        "largest gradient difference from eager": lambda entry: f"{_gradient_difference(entry, runs[0]):.1e}",
        "unused_head.weight.grad": lambda entry: _described(entry.first_gradients["unused_head.weight"]),
        "unused_head.weight moved by": lambda entry: f"{_moved(entry.model, initial):.1e}",
        "time to first step": lambda entry: f"{entry.seconds[0]:.2f} s",
        "step": lambda entry: f"{1e3 * statistics.median(entry.seconds[WARMUP:]):.1f} ms",
    }
    for label, cell in rows.items():
        table.add_row(label, *(cell(entry) for entry in runs))
    return table


def _gradient_difference(entry: Run, eager: Run) -> float:
    """Over all parameters with a gradient in eager, relative to the largest entry of each gradient."""
    pairs = [(entry.first_gradients[name], g) for name, g in eager.first_gradients.items() if g is not None]
    return max(float((mine - theirs).abs().max() / theirs.abs().max()) for mine, theirs in pairs if mine is not None)


def _described(gradient: Tensor | None) -> str:
    if gradient is None:
        return "None"
    return "values" if gradient.count_nonzero() else "zeros"


def _moved(model: nn.Module, initial: nn.Module) -> float:
    before, after = (m.get_parameter("unused_head.weight").detach() for m in (initial, model))
    return float((after - before).abs().max())
