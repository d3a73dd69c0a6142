"""The blocks that a holder gives: those of the newest job, unless a job is named."""

from __future__ import annotations

import pytest
import ray

from penstock.bridge.blocks import BlockHolder


@pytest.fixture
def holder(monkeypatch: pytest.MonkeyPatch) -> BlockHolder:
    monkeypatch.setattr(ray, "put", lambda data: data)
    return BlockHolder()


def bring(holder: BlockHolder, job: str, sink: str, *rows: bytes) -> None:
    holder.serve(job, sink, None)
    for place, data in enumerate(rows):
        holder.stage((job, sink, 0, 1, 0), place, data, 1, b"")
    holder.commit([(job, sink, 0, 1, 0)])


def seen(holder: BlockHolder, *of: str) -> list[bytes]:
    return [block.data for block in holder.blocks(*of).values()]  # type: ignore[misc] # nothing is put here


def test_the_blocks_of_the_newest_job_are_given(holder: BlockHolder) -> None:
    assert seen(holder) == []
    bring(holder, "first", "out", b"1")
    assert seen(holder) == [b"1"]
    bring(holder, "second", "out", b"2")
    bring(holder, "second", "more", b"3")
    holder.serve("first", "out", None)  # a subtask of it restarts
    assert seen(holder) == [b"2", b"3"]
    assert (seen(holder, "first", "out"), seen(holder, "second", "more")) == ([b"1"], [b"3"])
    holder.serve("third", "out", None)
    assert seen(holder) == [], "the newest job has no rows"
