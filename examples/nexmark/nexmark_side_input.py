"""`side_input`: the bounded table that query 13 joins with bids."""

from __future__ import annotations

from functools import cache
from typing import Final

KEYS: Final = 10_000


@cache
def side_input() -> dict[int, str]:
    """A value for two thirds of the keys; bids with other keys have no partner."""
    return {key: f"value-{key * 7919 % KEYS}" for key in range(KEYS) if key % 3}
