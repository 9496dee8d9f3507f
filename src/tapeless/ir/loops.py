"""The loops that generated programs call. Their source is printed in front of such programs, so it is kept plain."""

import torch

from tapeless.ir.ops import accumulate


def run_scan(body, length, carries, rows, operands, totals=0, stacked=0, reverse=False):
    """Carries pass from row to row; the next results of the body are summed, the others stacked."""
    first, sums, stacks = len(carries), [None] * totals, [[] for _ in range(stacked)]
    slices = list(zip(*(x.unbind() for x in rows))) if rows and length else [()] * length
    for row in reversed(slices) if reverse else slices:
        out = body([*carries, *row, *operands])
        carries, rest = out[:first], out[first + totals :]
        sums = [accumulate(a, b) for a, b in zip(sums, out[first:])]
        for stack, piece in zip(stacks, rest):
            stack.append(piece)
    return [*carries, *sums, *(stack_up(s[::-1] if reverse else s) for s in stacks)]


def run_while(condition, body, carries, operands, stacked=0):
    """Carries pass from round to round; the other results of the body are stacked."""
    first, rounds, stacks = len(carries), 0, [[] for _ in range(stacked)]
    while condition([*carries, *operands])[0]:
        out = body([*carries, *operands])
        carries, rounds = out[:first], rounds + 1
        for stack, piece in zip(stacks, out[first:]):
            stack.append(piece)
    if not rounds:
        carries = [c.clone() if isinstance(c, torch.Tensor) else c for c in carries]
    return [*carries, rounds, *map(stack_up, stacks)]


def stack_up(pieces):
    """A loop that made no round leaves a stack that nobody reads."""
    return torch.stack(pieces) if pieces else torch.empty(0)
