"""Writes a text for the word count: made-up words with realistic frequencies, the same in every run."""

from __future__ import annotations

import random
from pathlib import Path

_SYLLABLES = "ka lo mi ren tu vas pe on dri sel gra ne fo il qua bra ster win de ou".split()  # noqa: SIM905


def generate_text(path: Path, megabytes: float = 6.0, words: int = 20_000, seed: int = 7) -> None:
    """Write lines of ten words, about `megabytes` in total; a word's frequency falls with its rank."""
    chance = random.Random(seed)
    vocabulary = list(
        dict.fromkeys("".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4))) for _ in range(words * 2))
    )[:words]
    weights = [1 / (rank + 5) for rank in range(len(vocabulary))]
    written, limit = 0, int(megabytes * 1e6)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        while written < limit:
            drawn = chance.choices(vocabulary, weights, k=10_000)
            lines = "".join(" ".join(drawn[i : i + 10]) + "\n" for i in range(0, len(drawn), 10))
            file.write(lines)
            written += len(lines)
