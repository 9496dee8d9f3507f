"""Train MACE, a force field from PyPI built on e3nn, through Tapeless; compare with eager at every step.

    make force-field

The loss reads energies, forces and stress, so each training step differentiates a derivative. `inside`: the whole
model, whose forward calls `torch.autograd.grad`, is one graph (`tapeless.compile`). `graph breaks`: the same under
`torch.compile(backend="tapeless")`, where Dynamo cuts the program at that call.

MACE is compiled the way its authors prepare it for `torch.compile`: e3nn's TorchScript is turned off before the model
is built, and `mace.tools.compile.simplify` unrolls what e3nn writes as loops over irreducible representations.
"""

import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn

import tapeless
from benchmarks.gradients import compare
from benchmarks.measure import Clock, captured
from benchmarks.tables import RESULTS, Table, number, origin, tiny, write_markdown

STEPS = 10
TOLERANCE = 1e-9
SPECIES = [1, 8]

WAYS: dict[str, Callable[[nn.Module], Callable]] = {
    "eager": lambda model: model,
    "inside": tapeless.compile,
    "graph breaks": lambda model: torch.compile(model, backend="tapeless"),
}


def mace() -> nn.Module:
    """A small MACE with two interactions and messages up to second order."""
    import e3nn
    import numpy
    from mace import modules
    from mace.tools.compile import simplify

    e3nn.set_optimization_defaults(jit_script_fx=False)
    torch.manual_seed(0)
    model = modules.ScaleShiftMACE(
        r_max=4.0,
        num_bessel=4,
        num_polynomial_cutoff=3,
        max_ell=2,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
        num_interactions=2,
        num_elements=len(SPECIES),
        hidden_irreps=e3nn.o3.Irreps("8x0e + 8x1o"),
        MLP_irreps=e3nn.o3.Irreps("8x0e"),
        gate=torch.nn.functional.silu,
        atomic_energies=numpy.array([-1.0, -3.0]),
        avg_num_neighbors=3.0,
        atomic_numbers=SPECIES,
        correlation=2,
        atomic_inter_scale=1.0,
        atomic_inter_shift=0.0,
    )
    return simplify(model)


def molecules() -> dict[str, Any]:
    """Two random arrangements of two water molecules, as MACE wants them."""
    from ase import Atoms
    from mace import data, tools
    from mace.tools.torch_geometric.dataloader import DataLoader

    torch.manual_seed(1)
    table = tools.AtomicNumberTable(SPECIES)
    atoms = [Atoms(numbers=[8, 1, 1] * 2, positions=(torch.rand(6, 3) * 2.5).numpy()) for _ in range(2)]
    graphs = [data.AtomicData.from_config(data.config_from_atoms(a), z_table=table, cutoff=4.0) for a in atoms]
    return next(iter(DataLoader(graphs, batch_size=len(graphs), shuffle=False))).to_dict()


@dataclass
class Training:
    """One model being trained one way, and what was seen of it."""

    compile: Callable[[nn.Module], Callable]
    inputs: dict[str, Any]
    model: nn.Module = field(default_factory=mace)
    times: list[Clock] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = self.compile(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self) -> tuple[Tensor, dict[str, Tensor | None]]:
        """One step: its loss and its gradients."""
        start = Clock()
        self.optimizer.zero_grad()
        out = self.network(dict(self.inputs), training=True, compute_force=True, compute_stress=True)
        loss = out["energy"].square().mean() + (out["forces"] - 0.1).square().mean() + out["stress"].square().mean()
        loss.backward()
        self.times.append(start.elapsed())
        found = {name: None if p.grad is None else p.grad.clone() for name, p in self.model.named_parameters()}
        self.optimizer.step()
        return loss.detach(), found


def measure() -> dict[str, Any]:
    """All ways side by side, a step at a time."""
    inputs = molecules()
    trainings, graphs = {}, {}
    seen: dict[str, list[Any]] = {}
    for way, compile in WAYS.items():
        torch._dynamo.utils.counters.clear()
        trainings[way] = Training(compile, inputs)
        seen[way] = [trainings[way].step()]
        graphs[way] = captured()["graphs"]
    for _ in range(STEPS - 1):
        for way, training in trainings.items():
            seen[way].append(training.step())
    return {way: _summary(trainings, seen, graphs, way) for way in WAYS}


def _summary(trainings: dict[str, Training], seen: dict[str, list[Any]], graphs: dict[str, int], way: str) -> Any:
    differences = [compare(e[1], a[1]) for e, a in zip(seen["eager"], seen[way], strict=True)]
    later = slice(3, None)  # the programs that a few steps have shown to be needed exist by then
    ratios = [t.cpu / e.cpu for t, e in zip(trainings[way].times[later], trainings["eager"].times[later], strict=True)]
    return {
        "graphs": graphs[way],
        "first_s": trainings[way].times[0].wall,
        "step_s": statistics.median(t.wall for t in trainings[way].times[later]),
        "ratio": statistics.median(ratios),
        "loss": max(float(abs(a[0] - e[0]) / abs(e[0])) for e, a in zip(seen["eager"], seen[way], strict=True)),
        "error": max(d.error for d in differences),
        "nones_differ": sum(d.nones_differ for d in differences),
    }


def main() -> None:
    """Measure, write the results, fail if a gradient is not eager's."""
    torch.set_default_dtype(torch.float64)
    results = measure()
    table = Table(
        f"MACE, energy, forces and stress, {STEPS} steps in float64",
        ("way", "graphs", "first step, s", "step, ms", "÷ eager", "loss error", "gradient error", "Nones that differ"),
        [
            (
                way,
                str(found["graphs"]),
                number(found["first_s"]),
                number(1e3 * found["step_s"]),
                number(found["ratio"]),
                tiny(found["loss"]),
                tiny(found["error"]),
                str(found["nones_differ"]),
            )
            for way, found in results.items()
        ],
    )
    table.show()
    facts = {**origin(), **{name: version(name) for name in ("mace-torch", "e3nn")}, "command": "make force-field"}
    (RESULTS / "force_field.json").write_text(json.dumps({"origin": facts, "results": results}, indent=1) + "\n")
    write_markdown(RESULTS / "force_field.md", "A force field from PyPI", facts, [table])
    sys.exit(any(found["error"] > TOLERANCE or found["nones_differ"] for found in results.values()))


if __name__ == "__main__":
    main()
