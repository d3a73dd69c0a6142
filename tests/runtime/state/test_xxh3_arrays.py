"""xxh3 over arrays gives the numbers of the xxhash library."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from penstock.runtime.state.stable_hash import CHUNK
from penstock.runtime.state.stable_hash_arrays import MOST_WORDS, xxh3_words


@pytest.mark.parametrize("words", range(1, MOST_WORDS + 1))
def test_rows_of_words_hash_as_the_library_hashes_their_bytes(words: int) -> None:
    random = np.random.default_rng(words)
    columns = [random.integers(0, 1 << 64, 40, dtype=np.uint64) for _ in range(words)]
    rows = [struct.pack(f"<{words}Q", *row) for row in zip(*(c.tolist() for c in columns), strict=True)]
    for seed in (0, 3, (1 << 32) - 1):
        assert xxh3_words(columns, seed).tolist() == [xxh3_64_intdigest(row, seed) for row in rows]


@pytest.mark.parametrize("rows", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1])
def test_the_end_of_a_chunk_is_no_border(rows: int) -> None:
    numbers = np.arange(rows)
    hashes = xxh3_words([numbers, numbers], 3)
    assert len(hashes) == rows
    for row in {0, rows // 2, rows - 1} if rows else ():
        assert int(hashes[row]) == xxh3_64_intdigest(struct.pack("<QQ", row, row), 3)


@pytest.mark.parametrize("words", [0, MOST_WORDS + 1])
def test_no_words_and_too_many_are_refused(words: int) -> None:
    with pytest.raises(ValueError, match="1 to 16"):
        xxh3_words([np.zeros(1, np.int64)] * words, 0)
