"""`HybridSource`: the enumerator switches when all readers are through, and readers know their phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CollectionSource,
    ConfigurationError,
    ConnectorError,
    GeneratorSource,
    HybridSource,
    PenstockError,
)
from penstock.connectors import ConnectorContext, EndOfHistory, OnRequest, Polled
from penstock.runtime.operators.requested_splits import RequestedSplits
from penstock.runtime.operators.source import NeededColumns, SplitProgress
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.manual_time import ManualClock

CODEC = ValueCodec()
CONTEXT = ConnectorContext("job", "job", "read", 0, 2, 1, ManualClock())


class Letters:
    """A source of one split for each letter."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def splits(self, parallelism: int) -> Sequence[str]:
        return list(self.letters)

    def reader(self, context: ConnectorContext, splits: Sequence[str]) -> Any:
        return CollectionSource(splits).reader(context, [(0, len(splits))])


class Readers:
    """The context of an enumerator, and readers that read all their splits at each request."""

    operator_id = "read"

    def __init__(self, source: HybridSource[Any], parallelism: int = 2, state: Any = None) -> None:
        self.parallelism = parallelism
        self.background: list[Callable[[], None]] = []
        self.held: dict[int, list[Any]] = {subtask: [] for subtask in range(parallelism)}
        self.ended: set[int] = set()
        self.read: list[tuple[int, Any]] = []
        self.enumerator = source.enumerator(self, None if state is None else CODEC.loads(CODEC.dumps(state)))
        self.enumerator.start()

    def assign(self, subtask: int, splits: Sequence[Any]) -> None:
        self.held[subtask] += splits

    def signal_no_more_splits(self, subtask: int) -> None:
        self.ended.add(subtask)

    def run_in_background(self, work: Any, on_result: Any, on_error: Any = None) -> None:
        self.background.append(lambda: on_result(work()))

    def run_background(self) -> None:
        while self.background:
            self.background.pop(0)()

    def request(self, subtask: int) -> None:
        """A reader reads what it has, and asks for more."""
        for phase, _, split in self.held[subtask]:
            assert phase == 1 or not any(later for later, _ in self.read), "the history is read before"
            self.read.append((phase, split))
        self.held[subtask] = []
        if subtask not in self.ended:
            self.enumerator.handle_split_request(subtask)

    def read_all(self) -> list[tuple[int, Any]]:
        for _ in range(100):
            self.run_background()
            for subtask in range(self.parallelism):
                self.request(subtask)
        assert self.ended == set(range(self.parallelism))
        return self.read


def after(end: EndOfHistory) -> str:
    return "".join(sorted(end.splits))


def both(history: str = "abc", live: str = "xyz") -> HybridSource[str]:
    return HybridSource(Letters(history), then=Letters(live))


def test_the_live_source_begins_when_every_reader_has_read_the_history() -> None:
    readers = Readers(both())
    readers.run_background()
    readers.request(0)
    readers.request(1)
    readers.request(0)
    readers.request(0)
    readers.run_background()
    assert readers.held == {0: [], 1: [(0, None, "b")]}, "the other reader is not through"
    readers.request(1)
    readers.run_background()
    assert sorted(split for held in readers.held.values() for *_, split in held) == ["x", "y", "z"]
    assert all(readers.held.values()), "each reader has a share of the live splits"


def test_switch_computes_the_live_source_from_the_end_of_the_history() -> None:
    ends: list[EndOfHistory] = []

    def switch(end: EndOfHistory) -> str:
        ends.append(end)
        return after(end)

    source = HybridSource(Letters("bca"), then=lambda start: Letters(start.upper()), switch=switch)
    found = Readers(source).read_all()
    assert ends == [EndOfHistory(("b", "c", "a"))], "it is asked once, at the end"
    assert [split for phase, split in found if phase == 0] == ["b", "c", "a"]
    assert sorted(split for phase, split in found if phase == 1) == ["A", "B", "C"]


@given(
    st.text("abcdefgh", max_size=6).map(lambda text: "".join(dict.fromkeys(text))),
    st.text("uvwxyz", max_size=5).map(lambda text: "".join(dict.fromkeys(text))),
    st.lists(st.sampled_from(["background", "restore", "kill", 0, 1, 2]), max_size=40),
    st.booleans(),
)
def test_every_split_is_read_once_whatever_restarts(
    history: str, live: str, events: list[Any], has_switch: bool
) -> None:
    """A restore takes the splits that readers hold with it, at any parallelism; a kill gives them back."""
    source = both(history, live)
    if has_switch:
        source = HybridSource(
            Letters(history), then=lambda end: Letters(live[len(end) :] + live[: len(end)]), switch=after
        )
    readers, read = Readers(source), list[Any]()
    for number, event in enumerate(events):
        if event == "background" and readers.background:
            readers.background.pop(0)()
        elif event == "kill":
            held, readers.held[0] = readers.held[0], []
            readers.enumerator.reader_failed(0)
            if 0 not in readers.ended:
                readers.enumerator.add_splits_back(held)
        elif event == "restore":
            held = [split for some in readers.held.values() for split in some]
            read += readers.read
            readers = Readers(source, 1 + number % 3, readers.enumerator.snapshot())
            for at, split in enumerate(held):
                readers.held[at % readers.parallelism].append(split)
        elif isinstance(event, int) and event < readers.parallelism:
            readers.request(event)
    read += readers.read_all()
    assert sorted(read) == sorted([(0, split) for split in history] + [(1, split) for split in live])


def test_a_switch_that_fails_names_the_source_and_the_function() -> None:
    def no_offset(end: EndOfHistory) -> int:
        raise KeyError("offset")

    readers = Readers(HybridSource(Letters("a"), then=lambda start: Letters("x"), switch=no_offset))
    with pytest.raises(
        ConnectorError,
        match=r"source 'read': the start of .* switch no_offset \(.*py:\d+\): KeyError: 'offset'",
    ):
        readers.read_all()


def test_a_reader_that_ends_with_splits_left_is_named() -> None:
    class Reader:
        def poll(self, max_rows: int) -> Any:
            return Polled(finished=True)

        def snapshot(self) -> list[str]:
            return ["left"]

        def snapshot_taken(self, checkpoint_id: int) -> None: ...

        def notify_checkpoint_complete(self, checkpoint_id: int) -> None: ...

        def close(self) -> None: ...

    class Leaves(Letters):
        def reader(self, context: ConnectorContext, splits: Sequence[str]) -> Any:
            return Reader()

    source = HybridSource(Leaves("a"), Letters("x"))
    reader = source.reader(CONTEXT, source.splits(1))
    assert reader.poll(10).finished
    with pytest.raises(ConnectorError, match=r"source 'read': a reader .* still has splits: \['left'\]"):
        reader.snapshot()


def test_a_switch_that_a_failed_reader_has_overtaken_waits_for_it() -> None:
    readers = Readers(both("ab"))
    readers.run_background()
    for subtask in (0, 1, 0, 1):
        readers.request(subtask)
    assert len(readers.background) == 1, "the switch is being computed"
    readers.enumerator.reader_failed(0)
    readers.enumerator.add_splits_back([(0, None, "a")])
    readers.read.remove((0, "a"))
    readers.run_background()
    assert readers.held == {0: [], 1: []}
    assert sorted(readers.read_all()) == [(0, "a"), (0, "b"), (1, "x"), (1, "y"), (1, "z")]


def test_history_that_comes_back_after_the_switch_is_read_first() -> None:
    readers = Readers(both("ab"))
    readers.run_background()
    for subtask in (0, 1, 0, 1):
        readers.request(subtask)
    readers.run_background()
    live = readers.held[0]
    readers.held[0] = []
    readers.enumerator.reader_failed(0)
    readers.enumerator.add_splits_back([(0, None, "a"), *live])
    snapshot = readers.enumerator.snapshot()
    for enumerator in (readers.enumerator, Readers(both("ab"), state=snapshot).enumerator):
        assert enumerator.snapshot() == snapshot
    readers.enumerator.handle_split_request(0)
    assert readers.held[0] == [(0, None, "a")]
    readers.held[0] = []
    readers.enumerator.handle_split_request(0)
    assert readers.held[0] == live


def test_a_reader_reads_the_history_before_live_splits_and_its_snapshot_names_the_phases() -> None:
    source = HybridSource(Letters("abc"), then=lambda start: Letters("xyz"), switch=lambda end: 7)
    reader = source.reader(CONTEXT, [(1, 7, "x"), (0, None, "a"), (1, 7, "y"), (0, None, "b")])
    assert reader.split_progress.has_waiting
    polled = reader.poll(1)
    assert (polled.batch.rows, polled.split, polled.finished) == (["a"], (0, 2), False)  # type: ignore[union-attr]
    assert reader.split_progress == SplitProgress(((0, 2),), True)
    assert reader.snapshot() == [(0, None, (1, 2)), (1, 7, "x"), (1, 7, "y")]
    rows, finished = [], False
    while not finished:
        polled = reader.poll(10)
        rows += [] if polled.batch is None else list(polled.batch.rows)
        finished = polled.finished
    assert rows == ["b", "x", "y"]
    assert reader.snapshot() == []
    reader.close()


def test_columns_that_no_step_needs_are_skipped_by_both_sources() -> None:
    class InPart(Letters):
        needed: NeededColumns | None = None

        def reading(self, needed: NeededColumns) -> Letters:
            part = InPart(self.letters)
            part.needed = needed
            return part

    needed = NeededColumns(("a",))
    for source in (
        HybridSource(InPart("a"), then=InPart("b")),
        HybridSource(InPart("a"), then=lambda start: InPart(start), switch=after),
    ):
        part: Any = source.reading(needed)
        assert [part.of_phase(phase, "b").needed for phase in (0, 1)] == [needed, needed]


def test_a_history_with_an_enumerator_of_its_own_ends_when_its_readers_are_through() -> None:
    source = HybridSource(OnRequest(Letters("abc")), then=OnRequest(Letters("xyz")))
    assert sorted(Readers(source).read_all()) == [(0, "a"), (0, "b"), (0, "c"), (1, "x"), (1, "y"), (1, "z")]


def test_what_is_no_source_is_refused() -> None:
    letters: Any = Letters("a")
    for make, message in (
        (lambda: HybridSource("a", letters), "history must be a source, not 'a'"),  # type: ignore[arg-type]
        (lambda: HybridSource(Letters, letters), "history must be a source"),  # type: ignore[arg-type]
        (lambda: HybridSource(letters, lambda start: letters), "then must be a source unless there is a"),
        (
            lambda: HybridSource(letters, letters, switch=after),
            "then must be a function from the result of switch",
        ),
        (lambda: HybridSource(letters, letters, switch=3), "switch must be a function"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigurationError, match=message):
            make()
    wrong: Any = HybridSource(letters, lambda start: start, switch=lambda end: 7)
    with pytest.raises(ConfigurationError, match="then must return a source, not 7"):
        Readers(wrong).read_all()


class Followed:
    """A reader of one record that notes what it learns of checkpoints."""

    def __init__(self, letter: str, log: list[Any]) -> None:
        self.letter, self.log, self.is_read = letter, log, False

    def poll(self, max_rows: int) -> Polled[Any]:
        self.is_read = True
        return Polled(RowBatch([self.letter]), finished=True)

    def snapshot(self) -> Sequence[Any]:
        return [] if self.is_read else [self.letter]

    def snapshot_taken(self, checkpoint_id: int) -> None:
        self.log.append((self.letter, "taken", checkpoint_id))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.log.append((self.letter, "complete", checkpoint_id))

    def close(self) -> None:
        self.log.append((self.letter, "closed"))


class Acknowledged(Letters):
    def __init__(self, letters: str, log: list[Any]) -> None:
        super().__init__(letters)
        self.log = log

    def reader(self, context: ConnectorContext, splits: Sequence[str]) -> Any:
        return Followed(splits[0], self.log)


def test_a_reader_that_follows_checkpoints_stays_open_until_one_covers_its_splits() -> None:
    log: list[Any] = []
    source = HybridSource(Acknowledged("a", log), then=Acknowledged("b", log))
    requested = RequestedSplits(source, CONTEXT, [(0, None, "a")], lambda event: None)
    requested.snapshot()
    requested.snapshot_taken(1)
    assert log == []
    assert requested.poll(10).batch == RowBatch(["a"])
    requested.notify_checkpoint_complete(1)
    assert log == [("a", "complete", 1)], "it covers no record"
    requested.handle_event(((1, None, "b"),))
    assert requested.poll(10).batch == RowBatch(["b"])
    assert requested.snapshot() == []
    requested.snapshot_taken(2)
    log.clear()
    requested.notify_checkpoint_complete(2)
    assert log == [("a", "complete", 2), ("a", "closed"), ("b", "complete", 2), ("b", "closed")]
    requested.close()
    assert len(log) == 4, "each was closed once"


def test_readers_that_no_checkpoint_covers_are_closed_with_the_source() -> None:
    log: list[Any] = []
    source = HybridSource(Acknowledged("a", log), then=Acknowledged("b", log))
    reader = source.reader(CONTEXT, [(0, None, "a"), (1, None, "b")])
    assert [reader.poll(1).finished, reader.poll(1).finished] == [False, True]
    reader.close()
    assert sorted(log) == [("a", "closed"), ("b", "closed")]


def test_a_reader_that_triggers_checkpoints_is_refused() -> None:
    class Inducing(Followed):
        def should_trigger_checkpoint(self) -> int | None:
            return None

    class Induced(Letters):
        def reader(self, context: ConnectorContext, splits: Sequence[str]) -> Any:
            return Inducing("a", [])

    source = HybridSource(Induced("a"), then=GeneratorSource(abs))
    with pytest.raises(PenstockError, match="Inducing is an ExternallyInducedReader, but its splits"):
        source.reader(CONTEXT, [(0, None, "a")]).poll(1)
