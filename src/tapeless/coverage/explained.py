"""Why an OpInfo entry differs from eager, for every one that does."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {}
