"""A word count of two operators of the test's own, with every kind of state that there is."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs.words import environment

from penstock import FileSink, StreamEnvironment
from penstock.connectors import Source
from penstock.operators import Operator, OperatorContext, RowBatch
from penstock.runtime.state.key_groups import key_group_of
from penstock.state import RawState


class LocalCounts(Operator):
    """Counts words before they are sent; the counts leave in front of each barrier."""

    def open(self, context: OperatorContext) -> None:
        self.counts: Counter[str] = Counter()

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        for line in batch.rows:
            self.counts.update(line.split())
        yield from ()

    def prepare_snapshot_pre_barrier(self) -> Iterator[RowBatch]:
        counts, self.counts = self.counts, Counter()
        yield RowBatch(list(counts.items()))

    def end_of_data(self) -> Iterator[RowBatch]:
        yield from self.prepare_snapshot_pre_barrier()


class Totals(Operator):
    """Adds local counts up; says at its end what its other kinds of state hold."""

    def open(self, context: OperatorContext) -> None:
        self.context = context
        self.total = context.value_state("total", default=0, of_type=int)
        self.rules = context.operator_list_state("rules", "broadcast")
        self.known = context.operator_list_state("known", "union")
        self.pieces = [*context.raw.operator]
        copies = {group: json.loads(data) for group, data in context.raw.keyed.items()}
        self.groups = len(copies)
        for word, total in (pair for copy in copies.values() for pair in copy.items()):
            context.set_current_key(word)
            assert self.total.value() == total, f"{word}: {total} in raw state"
        self.copies: dict[int, dict[str, int]] = {
            group: copies.get(group, {}) for group in context.key_groups
        }

    def process(self, batch: RowBatch) -> Iterator[RowBatch]:
        updates = []
        for word, (_, more) in self.context.by_key(batch):
            self.total.update(self.total.value() + more)
            self.pieces.append(b"%d" % more)
            self.copies[key_group_of(word, 128)][word] = self.total.value()
            updates.append({"word": word, "more": more, "count": self.total.value()})
        yield RowBatch(updates)

    def snapshot_raw(self, checkpoint_id: int) -> RawState:
        return RawState(self.pieces, {g: json.dumps(copy).encode() for g, copy in self.copies.items()})

    def end_of_data(self) -> Iterator[RowBatch]:
        yield RowBatch(
            [
                {
                    "subtask": self.context.subtask,
                    "rules": self.rules.get(),
                    "known": self.known.get(),
                    "pieces": sum(map(int, self.pieces)),
                    "groups": self.groups,
                }
            ]
        )


def own_count(tmp_path: Path, source: Source[str], **options: Any) -> StreamEnvironment:
    """lines -> local counts -> totals -> the folder `out`."""
    env = environment(tmp_path, **options)
    local = env.from_source("lines", source).rebalance().transform("local", LocalCounts())
    totals = local.key_by(lambda pair: pair[0]).transform("totals", Totals())
    totals.sink("out", FileSink.json(tmp_path / "out"))
    return env


class Model:
    """Multiplies; leaves a file for each time that it is made or closed."""

    def __init__(self, folder: Path, *, weight: int) -> None:
        self.folder, self.weight = folder, weight
        self._note("made")

    def __call__(self, batch: list[int]) -> list[dict[str, int]]:
        return [{"process": os.getpid(), "scored": self.weight * number} for number in batch]

    def close(self) -> None:
        self._note("closed")

    def _note(self, what: str) -> None:
        with (self.folder / what).open("a") as file:
            file.write(f"{os.getpid()}\n")
