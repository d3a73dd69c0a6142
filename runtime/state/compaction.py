"""When to merge the files of a chain of keyed state, and which of them.

A chain is a base and changes, oldest first. Merging everything whenever the chain is long would rewrite a
large base for a few small changes. Never merging would make restores slow and keep dead values for ever. So
this merges a *suffix* of the chain, size-tiered as in log-structured stores. Once the changes outweigh the
base, it merges all. When there are too many files, it merges from the oldest change that is no larger than
what came after it. Sizes then fall from file to file, and a byte is rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a chain is merged.

    Attributes:
        max_files: A chain longer than this is merged in part.
        growth: A chain whose changes are more than this many times its base is merged whole.
    """

    max_files: int = 8
    growth: float = 1.0


def first_to_merge(sizes: Sequence[int], policy: CompactionPolicy) -> int | None:
    """Index of the first piece to merge with all later ones; `None` when nothing need be merged.

    Args:
        sizes: Bytes of each piece, oldest first, the new one last.
        policy: The limits.

    Example:
        >>> first_to_merge([1000, 10, 10], CompactionPolicy(max_files=3)) is None
        True
        >>> first_to_merge([1000, 10, 10, 10], CompactionPolicy(max_files=3))
        1
        >>> first_to_merge([20, 10, 10, 10], CompactionPolicy(max_files=8))
        0
    """
    if len(sizes) < 2:
        return None
    after = sum(sizes) - sizes[0]
    if after > policy.growth * sizes[0]:
        return 0
    if len(sizes) <= policy.max_files:
        return None
    for index in range(1, len(sizes) - 1):
        after -= sizes[index]
        if sizes[index] <= after:
            return index
    return len(sizes) - 2
