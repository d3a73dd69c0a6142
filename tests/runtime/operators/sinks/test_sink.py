from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.connectors import LastCommit
from penstock.runtime.errors import OperatorError
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.operators.sinks import COMMITTABLES, RemovesLeftovers, Sink, SinkOperator
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.snapshot.plain_values import from_plain, to_plain
from penstock.runtime.testing.harness import HarnessSnapshot, OperatorHarness


@dataclass
class Place:
    """The target of records; outlives writers, as a database outlives a job's attempts."""

    staged: dict[str, list[Any]] = field(default_factory=dict)
    visible: dict[str, list[Any]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    fails_to_commit: bool = False
    cleans: bool = True

    def writer(self, context):
        return (CleaningWriter if self.cleans else Writer)(self, f"{context.attempt}.{context.subtask}")

    @property
    def rows(self) -> list[Any]:
        return sorted(row for rows in self.visible.values() for row in rows)


class Writer:
    def __init__(self, place: Place, name: str) -> None:
        self.place, self.name = place, name
        self.open_rows: list[Any] = []
        self.transactions = 0

    def write(self, batch: Batch) -> None:
        self.open_rows += batch.rows  # type: ignore[union-attr]

    def prepare_commit(self) -> Sequence[Any]:
        if not self.open_rows:
            return []
        self.transactions += 1
        transaction = f"{self.name}.{self.transactions}"
        self.place.staged[transaction] = self.open_rows
        self.open_rows = []
        return [transaction]

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        if self.place.fails_to_commit:
            msg = "the place is away"
            raise OSError(msg)
        self.place.log.append(f"commit {','.join(committables)} for {permit.checkpoint_id}")
        for transaction in committables:
            if transaction not in self.place.visible:
                self.place.visible[transaction] = self.place.staged.pop(transaction)

    def close(self) -> None:
        self.place.log.append("close")


class CleaningWriter(Writer):
    def remove_leftovers(self, permit: CommitPermit) -> None:
        self.place.log.append("remove leftovers")
        mine = int(self.name.split(".")[0])
        for transaction in [t for t in self.place.staged if int(t.split(".")[0]) < mine]:
            del self.place.staged[transaction]


def open_sink(place: Place, **more: Any) -> OperatorHarness:
    return OperatorHarness(SinkOperator(place), **more)


def test_the_sink_of_these_tests_keeps_to_the_protocols():
    assert isinstance(Place(), Sink)
    assert isinstance(CleaningWriter(Place(), "1.0"), RemovesLeftovers)
    assert not isinstance(Writer(Place(), "1.0"), RemovesLeftovers)


def test_nothing_is_visible_before_the_checkpoint_is_complete():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1, 2])
        snapshot = harness.snapshot()
        harness.push([3])
        assert place.rows == []
        harness.complete_checkpoint(snapshot)
        assert place.rows == [1, 2]
        assert dict(harness.statistics().extra) == {"committed": 1, "uncommitted": 0}
        assert harness.statistics().records_in == 3


def test_an_aborted_checkpoints_work_is_committed_with_the_next_one_in_order():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        harness.abort_checkpoint(harness.snapshot())
        assert place.log == []
        harness.push([2])
        harness.complete_checkpoint(harness.snapshot())
    assert place.log[0] == "commit 1.0.1,1.0.2 for 2"
    assert place.rows == [1, 2]


def test_a_completion_covers_no_younger_checkpoint():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        older = harness.snapshot()
        harness.push([2])
        younger = harness.snapshot()
        harness.complete_checkpoint(older)
        assert place.rows == [1]
        harness.complete_checkpoint(younger)
        assert place.rows == [1, 2]


def test_a_snapshot_holds_all_transactions_that_are_not_committed():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        first = harness.snapshot()
        harness.push([2])
        second = harness.snapshot()
        harness.complete_checkpoint(first)
        third = harness.snapshot()
    assert [len(s.lists[COMMITTABLES][1]) for s in (first, second, third)] == [1, 2, 1]


def test_a_completed_checkpoint_whose_commit_was_lost_is_committed_by_the_next_attempt():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        snapshot = harness.snapshot()
        harness.push([99])
        harness.snapshot()
    with open_sink(place, restored=[snapshot], attempt=2) as harness:
        assert place.rows == [1]
        harness.push([2])
        harness.complete_checkpoint(harness.snapshot())
        harness.complete_checkpoint(harness.snapshot())
    assert place.rows == [1, 2]
    assert place.staged == {}
    assert place.log.count("remove leftovers") == 1


def test_a_commit_that_already_happened_is_repeated_and_changes_nothing():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        snapshot = harness.snapshot()
        harness.complete_checkpoint(snapshot)
    with open_sink(place, restored=[snapshot], attempt=2) as harness:
        assert place.rows == [1]
        assert harness.snapshot().lists[COMMITTABLES][1] == ()


def test_a_failed_commit_fails_the_attempt_and_the_next_one_commits():
    place = Place(fails_to_commit=True)
    with open_sink(place) as harness:
        harness.push([1])
        snapshot = harness.snapshot()
        with pytest.raises(OperatorError, match="sink Place: commit failed: OSError: the place is away"):
            harness.complete_checkpoint(snapshot)
        assert harness.statistics().extra["uncommitted"] == 1
    place.fails_to_commit = False
    with open_sink(place, restored=[snapshot], attempt=2):
        assert place.rows == [1]


def test_restored_transactions_are_shared_out_over_fewer_and_more_subtasks():
    def attempt_with(parallelism: int, place: Place) -> list[HarnessSnapshot]:
        snapshots = []
        for subtask in range(parallelism):
            with open_sink(place, subtask=subtask, parallelism=parallelism) as harness:
                harness.push([subtask])
                harness.snapshot()
                harness.push([subtask + 10])
                snapshots.append(harness.snapshot())
        return snapshots

    for old, new in [(3, 1), (1, 3)]:
        place = Place()
        snapshots = attempt_with(old, place)
        for subtask in range(new):
            with open_sink(place, restored=snapshots, subtask=subtask, parallelism=new, attempt=2):
                pass
        assert place.rows == sorted([*range(old), *range(10, 10 + old)])
        assert place.staged == {}


def test_restored_transactions_of_several_subtasks_are_committed_oldest_first():
    place = Place()
    snapshots = []
    for subtask in range(2):
        with open_sink(place, subtask=subtask, parallelism=2) as harness:
            for row in range(2):
                harness.push([row])
                snapshot = harness.snapshot()
            snapshots.append(snapshot)
    place.log.clear()
    with open_sink(place, restored=snapshots, attempt=2):
        assert place.log == ["commit 1.0.1,1.1.1,1.0.2,1.1.2 for 2"]


def test_leftovers_are_removed_by_subtask_0_alone_and_after_the_commit():
    place = Place()
    for subtask in (1, 0):
        with open_sink(place, subtask=subtask, parallelism=2) as harness:
            harness.push([subtask])
            harness.complete_checkpoint(harness.snapshot())
    assert place.log == [
        "commit 1.1.1 for 1",
        "close",
        "commit 1.0.1 for 1",
        "remove leftovers",
        "close",
    ]


def test_leftovers_are_not_removed_because_of_the_restored_checkpoint():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        snapshot = harness.snapshot()
    with open_sink(place, restored=[snapshot], attempt=2):
        assert "remove leftovers" not in place.log


def test_a_writer_that_can_not_clean_up_is_fine():
    place = Place(cleans=False)
    with open_sink(place) as harness:
        harness.push([1])
        harness.complete_checkpoint(harness.snapshot())
    assert place.log == ["commit 1.0.1 for 1", "close"]


def test_the_end_of_data_commits_nothing_where_checkpoints_do():
    place = Place()
    with open_sink(place) as harness:
        harness.push([1])
        harness.end_of_data()
        assert place.rows == []
        harness.complete_checkpoint(harness.snapshot())
        assert place.rows == [1]


def test_without_checkpoints_the_end_of_data_commits():
    place = Place()
    with open_sink(place, transactional=False) as harness:
        harness.push([1])
        assert place.rows == []
        harness.end_of_data()
    assert place.rows == [1]
    assert place.log == ["commit 1.0.1 for None", "remove leftovers", "close"]


def test_what_no_completed_checkpoint_covers_is_not_committed_on_restore(make_context):
    place = Place(staged={"1.0.1": [1]})
    context = make_context(0, restored={COMMITTABLES: [(5, "1.0.1")]}, is_restored=True)
    with pytest.raises(Exception, match="transaction of checkpoint 5, which the restored checkpoint"):
        SinkOperator(place).open(context)
    assert place.visible == {}


def test_a_writer_that_can_not_be_made_is_a_located_error():
    class Nowhere:
        def writer(self, context):
            msg = "no such table"
            raise LookupError(msg)

    with pytest.raises(
        OperatorError, match=r"'operator'.*sink Nowhere: open failed: LookupError: no such table"
    ):
        OperatorHarness(SinkOperator(Nowhere()))


@pytest.mark.parametrize("method", ["write", "commit", "remove_leftovers", "close"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_method_of_a_writer_that_never_runs_is_refused(method: str, is_async: bool) -> None:
    async def waits(self: Any, *_: Any) -> None:
        """Never awaited."""

    def yields(self: Any, *_: Any) -> Any:
        yield "never reached"

    class Broken(Place):
        def writer(self, context):
            methods = {method: waits if is_async else yields}
            return type("BrokenWriter", (CleaningWriter,), methods)(self, f"{context.attempt}.0")

    def run() -> None:
        with open_sink(Broken()) as harness:
            harness.push([1])
            harness.complete_checkpoint(harness.snapshot())

    says = "declared `async def`" if is_async else "yields"
    with pytest.raises(OperatorError, match=f"sink Broken: {method} failed: .*{method}.*{says}"):
        run()


class ReportingWriter(Writer):
    """Reports the rows that its last commit has made visible."""

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        new = [each for each in committables if each not in self.place.visible]
        super().commit(committables, permit)
        rows = sum(len(self.place.visible[each]) for each in new)
        self.made = LastCommit(str(len(self.place.visible)), rows) if new else None

    def last_commit(self) -> Any:
        return self.made


class ReportingPlace(Place):
    def writer(self, context):
        return ReportingWriter(self, f"{context.attempt}.{context.subtask}")


def test_the_last_commit_of_a_writer_is_in_its_statistics_with_checkpoint_and_time():
    place = ReportingPlace()
    with open_sink(place) as harness:
        harness.push([1, 2])
        assert harness.statistics().last_commit is None
        snapshot = harness.snapshot()
        harness.advance(5.0)
        harness.complete_checkpoint(snapshot)
        made = harness.statistics().last_commit
        assert made == LastCommit("1", 2, None, snapshot.checkpoint_id, harness.clock.now())
    with open_sink(place, restored=[snapshot]) as harness:
        assert harness.statistics().last_commit is None, "everything was visible before"


def test_a_last_commit_of_another_type_is_refused():
    class Odd(ReportingWriter):
        def last_commit(self) -> Any:
            return {"rows": 2}

    class OddPlace(Place):
        def writer(self, context):
            return Odd(self, "1.0")

    with open_sink(OddPlace()) as harness:
        harness.push([1])
        with pytest.raises(OperatorError, match=r"return a LastCommit\(...\), or None"):
            harness.complete_checkpoint(harness.snapshot())


def test_commits_of_one_checkpoint_are_added_up_and_otherwise_the_newest_counts():
    one, two = LastCommit("a", 3, 1, 8, at=50.0), LastCommit("b", 4, 2, 8, at=49.0)
    assert one.plus(two) == two.plus(one) == LastCommit("a", 7, 3, 8, 50.0)
    later = LastCommit("c", 1, None, 9, at=51.0)
    assert one.plus(later) == later.plus(one) == later
    statistics = OperatorStatistics(last_commit=one)
    assert statistics.plus(OperatorStatistics()).last_commit == one
    assert from_plain(OperatorStatistics, json.loads(json.dumps(to_plain(statistics)))) == statistics
