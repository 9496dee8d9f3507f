"""JAX as one more variant: a process of its own virtualenv, which takes its turn in every round."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.isolate import ROOT
from benchmarks.workloads import Workload

PYTHON = Path(os.environ.get("JAX_PYTHON", ROOT / ".venv-jax/bin/python"))
COUNTERPARTS = ("mlp_deep", "tfm_plain", "cnn_plain")
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "JAX_PLATFORMS": "cpu"}


def missing(workload: str) -> str | None:
    """Why a workload is not run in JAX, if it is not."""
    if workload not in COUNTERPARTS:
        return "no counterpart in JAX"
    return None if PYTHON.exists() else "no virtualenv for JAX: `make jax` makes one"


class Answering:
    """A process that is asked by lines and answers each with a line of JSON; its first answer comes unasked."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, cwd=ROOT, env=dict(os.environ) | environment, **pipes)
        self.first = self._answer()

    def sample(self, times: int) -> dict[str, float]:
        """Seconds of so many steps, by the wall and by the processor."""
        return self.ask(str(times))

    def ask(self, question: str) -> dict[str, float]:
        """The answer to a question."""
        self._process.stdin.write(question + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait(timeout=30)

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise RuntimeError(f"the process ended with code {self._process.wait()}")
        return json.loads(line)


class Peer(Answering):
    """A workload in JAX, with torch's weights and inputs."""

    def __init__(self, workload: Workload) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tapeless-jax-")
        values = {name: p.detach().numpy() for name, p in workload.model.named_parameters()}
        inputs = {f"input_{k}": value.numpy() for k, value in enumerate(workload.inputs)}
        path = Path(self._folder.name, "values.npz")
        np.savez(path, **values, **inputs)
        super().__init__(
            [str(PYTHON), str(Path(__file__).with_name("jax_peer.py")), workload.name, str(path)], ONE_THREAD
        )

    def step(self) -> None:
        """One step."""
        self.sample(1)

    def gradients(self) -> dict[str, Tensor | None]:
        """The gradients at the weights that it was given."""
        path = Path(self._folder.name, "gradients.npz")
        self.ask(f"gradients {path}")
        return {name: torch.from_numpy(value) for name, value in np.load(path).items()}

    def close(self) -> None:
        """End the process."""
        super().close()
        self._folder.cleanup()
