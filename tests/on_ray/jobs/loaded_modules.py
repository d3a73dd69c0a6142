"""A record that says what the process which makes it has loaded; this module itself loads nothing."""

from __future__ import annotations

import sys


def modules(_: int) -> dict[str, list[str]]:
    """Of the process that asks."""
    return {"loaded": sorted(sys.modules)}
