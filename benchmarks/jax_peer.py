"""The same networks in JAX, in a process of JAX's own virtualenv. `benchmarks/peer.py` talks to it.

    python jax_peer.py WORKLOAD VALUES.npz

`VALUES` holds weights by their names in torch and inputs as `input_0`, `input_1`. A line of JSON answers each line of
the standard input: the first one tells about the first step; a number asks for so many steps; `gradients PATH` has the
gradients written to a file.
"""

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, Any]


def linear(weights: Weights, name: str, x: Any) -> Any:
    y = x @ weights[f"{name}.weight"].T
    return y + weights[f"{name}.bias"] if f"{name}.bias" in weights else y


def cross_entropy(scores: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), labels[..., None], axis=-1)
    return -chosen.mean()


def mlp_deep(weights: Weights, x: Any, labels: Any) -> Any:
    layers = sorted({int(name.split(".")[0]) for name in weights})
    for layer in layers[:-1]:
        x = jax.nn.relu(linear(weights, str(layer), x))
    return cross_entropy(linear(weights, str(layers[-1]), x), labels)


def layer_norm(weights: Weights, name: str, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attention(weights: Weights, name: str, x: Any, heads: int = 4) -> Any:
    batch, length, width = x.shape
    split = linear(weights, f"{name}.query_key_value", x).reshape(batch, length, 3, heads, width // heads)
    query, key, value = split.transpose(2, 0, 3, 1, 4)
    scores = query @ key.swapaxes(-1, -2) / math.sqrt(width // heads)
    past = jnp.tril(jnp.ones((length, length), bool))
    weighted = jax.nn.softmax(jnp.where(past, scores, -jnp.inf), axis=-1) @ value
    return weighted.swapaxes(1, 2).reshape(batch, length, width)


def tfm_plain(weights: Weights, tokens: Any, targets: Any) -> Any:
    x = weights["token.weight"][tokens] + weights["position.weight"][: tokens.shape[1]]
    for k in range(1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))):
        block = f"blocks.{k}"
        normed = layer_norm(weights, f"{block}.attention_norm", x)
        x = x + linear(weights, f"{block}.output", attention(weights, block, normed))
        up = linear(weights, f"{block}.up", layer_norm(weights, f"{block}.feed_norm", x))
        x = x + linear(weights, f"{block}.down", jax.nn.gelu(up, approximate=True))
    return cross_entropy(linear(weights, "head", layer_norm(weights, "norm", x)), targets)


def convolution(weights: Weights, name: str, x: Any, stride: int = 1) -> Any:
    kernel, padding = weights[f"{name}.weight"], ((1, 1), (1, 1))
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding)
    return y + weights[f"{name}.bias"][:, None, None]


def cnn_plain(weights: Weights, images: Any, labels: Any) -> Any:
    x = jax.nn.relu(convolution(weights, "stem", images))
    for stage in sorted({name.split(".")[1] for name in weights if name.startswith("stages.")}):
        x = jax.nn.relu(convolution(weights, f"stages.{stage}.reduce", x, stride=2))
        for k in range(sum(name.startswith(f"stages.{stage}.residuals.") for name in weights) // 2):
            x = jax.nn.relu(x + convolution(weights, f"stages.{stage}.residuals.{k}", x))
    return cross_entropy(linear(weights, "head", x.mean((2, 3))), labels)


LOSSES: dict[str, Callable[..., Any]] = {"mlp_deep": mlp_deep, "tfm_plain": tfm_plain, "cnn_plain": cnn_plain}


def main() -> None:
    """Answer questions until the input ends."""
    workload, path = sys.argv[1:]
    values = np.load(path)
    inputs = [jnp.asarray(values[name]) for name in sorted(values) if name.startswith("input_")]
    weights = {name: jnp.asarray(values[name]) for name in values if not name.startswith("input_")}
    start = time.perf_counter(), time.process_time()
    gradients = jax.jit(jax.value_and_grad(LOSSES[workload]))
    run = lambda: jax.block_until_ready(gradients(weights, *inputs))  # noqa: E731
    run()
    first = _since(start)
    answer({"first_call_s": first["wall"], "first_call_cpu_s": first["cpu"]})
    for line in sys.stdin:
        answer(_answer(line.split(), run))


def _answer(words: list[str], run: Callable[[], Any]) -> dict[str, float]:
    if words[0] == "gradients":
        np.savez(words[1], **{name: np.asarray(value) for name, value in run()[1].items()})
        return {}
    start = time.perf_counter(), time.process_time()
    for _ in range(int(words[0])):
        run()
    return _since(start)


def _since(start: tuple[float, float]) -> dict[str, float]:
    return {"wall": time.perf_counter() - start[0], "cpu": time.process_time() - start[1]}


def answer(value: dict[str, float]) -> None:
    """A line of JSON for the one who asks."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
