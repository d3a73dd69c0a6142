"""The word count on a real cluster, when nothing goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import eventually, finish, penstock_actors, submit
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import lines, paced_lines, word_count

from penstock.runtime import CheckpointingMode, FileSource

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_word_is_counted_exactly_once(tmp_path: Path, parallelism: int) -> None:
    text = lines(5_000)
    for part in range(3):
        file = tmp_path / "in" / f"{part}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n".join(text[part::3]) + "\n", encoding="utf-8")
    source = FileSource.text(str(tmp_path / "in" / "*.txt"), split_size=8 * 1024)

    result = finish(submit(word_count(tmp_path, source, parallelism=parallelism)))

    assert_exactly_once(tmp_path / "out", text)
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 0
    assert result.statistics.completed_checkpoints >= 1
    assert result.statistics.operators["lines"].records_out == 5_000
    assert result.statistics.operators["updates"].records_in == 15_000
