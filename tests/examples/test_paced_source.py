"""The source of `examples/paced_source.py` waits for checkpoints."""

from __future__ import annotations

from pathlib import Path

from paced_source import PacedReader
from word_count import paced

from penstock.connectors import ConnectorContext
from penstock.runtime.testing.manual_time import ManualClock


def read_part(reader: PacedReader[str]) -> list[str]:
    """Everything that the reader gives before it wants to wait or has finished."""
    lines: list[str] = []
    while True:
        polled = reader.poll(1000)
        if polled.batch is not None:
            lines += polled.batch.rows  # type: ignore[union-attr]
        elif polled.finished or (polled.ready_at or 0.0) > 0.0:
            return lines


def test_a_part_of_the_text_is_read_between_two_checkpoints(tmp_path: Path) -> None:
    text = [f"line {i} ä" for i in range(10_000)]
    (tmp_path / "a.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    checkpoints = 2
    source = paced(str(tmp_path / "*.txt"), checkpoints)
    context = ConnectorContext("job", "job", "lines", 0, 1, 1, ManualClock())

    reader = source.reader(context, source.splits(1))
    parts = [read_part(reader)]
    while reader.snapshot():
        parts.append(read_part(reader))
    reader.close()

    assert sorted(line for part in parts for line in part) == sorted(text)
    assert len([part for part in parts if part]) > checkpoints + 1


def test_a_restored_reader_reads_the_rest(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(map(str, range(5_000))), encoding="utf-8")
    source = paced(str(tmp_path / "a.txt"), 2)
    context = ConnectorContext("job", "job", "lines", 0, 1, 1, ManualClock())
    reader = source.reader(context, source.splits(1))
    before = read_part(reader)
    restored = source.reader(context, reader.snapshot())
    after = read_part(restored)
    while restored.snapshot():
        after += read_part(restored)
    assert sorted(map(int, before + after)) == list(range(5_000))
