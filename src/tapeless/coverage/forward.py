"""Forward mode where eager has none, operator by operator."""

from __future__ import annotations

from functools import cache

from tapeless.testing.beyond import check
from tapeless.testing.forward_samples import samples


@cache
def beyond_eager() -> dict[str, str]:
    """The operators of the table for which eager has no forward mode; what is wrong with ours, if anything."""
    found: dict[str, str] = {}
    for outcome in map(check, samples()):
        if not outcome.eager_has_it:
            found[outcome.operator] = found.get(outcome.operator) or outcome.problem
    return dict(sorted(found.items()))
