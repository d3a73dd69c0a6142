"""State with a TTL: what is seen, what is cleaned when, what a snapshot holds, what another TTL does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from either_backend import Chosen, new_backend
from heap_setup import Files, take

from penstock import (
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    RuntimeContext,
    StateTtl,
    ValueState,
)
from penstock.runtime.errors import ConfigurationError, OperatorError
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.keyed_chunk import tables_of
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.testing.manual_time import ManualClock
from penstock.testing import OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")

SECOND = 1_000_000


def bound(clock: ManualClock, declaration: KeyedState, key: Any = "ann") -> tuple[Any, Any]:
    backend = new_backend(clock=clock)
    backend.set_current_key(key)
    return backend, backend.bind(declaration)


def again(
    clock: ManualClock, handle: KeyedStateHandle, files: Files, declaration: KeyedState
) -> tuple[Any, Any]:
    backend = new_backend(clock=clock)
    backend.restore([handle], files)
    view = backend.bind(declaration)
    backend.set_current_key("ann")
    return backend, view


def test_a_value_is_seen_until_its_time_is_over_and_not_a_microsecond_longer() -> None:
    clock = ManualClock()
    _, count = bound(clock, ValueState(int, default=0, name="count", ttl=10))
    count.update(3)
    clock.advance(9.999999)
    assert count.value() == 3
    clock.advance(0.000001)
    assert count.value() == 0


def test_writing_makes_a_value_live_on_and_reading_does_not() -> None:
    clock = ManualClock()
    _, count = bound(clock, ValueState(int, default=0, name="count", ttl=timedelta(seconds=10)))
    count.update(1)
    for _ in range(3):
        clock.advance(6)
        assert count.value() == 1
        count.update(1)
    clock.advance(6)
    assert count.value() == 1
    clock.advance(4)
    assert count.value() == 0


@pytest.mark.usefixtures("only_heap")
def test_reading_makes_a_value_live_on_where_the_user_wants_that() -> None:
    clock, files = ManualClock(), Files()
    ttl = StateTtl(10, refreshed_by="reads_and_writes")
    backend, count = bound(clock, ValueState(int, default=0, name="count", ttl=ttl))
    count.update(1)
    take(backend, files, 1, -1)
    for _ in range(3):
        clock.advance(6)
        assert count.value() == 1
    file = take(backend, files, 2, 1).files[-1]
    assert tables_of(files.read(file), file) == {"count": 1}
    clock.advance(10)
    assert count.value() == 0


def test_elements_and_entries_expire_one_by_one() -> None:
    clock = ManualClock()
    _, waiting = bound(clock, ListState(int, name="waiting", ttl=10))
    _, pages = bound(clock, MapState(str, int, name="pages", ttl=10))
    for number in range(4):
        waiting.add(number)
        pages[f"/{number}"] = number
        clock.advance(4)
    assert (waiting.get(), len(waiting), list(waiting)) == ([2, 3], 2, [2, 3])
    assert (dict(pages), len(pages), "/1" in pages, pages.get("/1")) == ({"/2": 2, "/3": 3}, 2, False, None)
    with pytest.raises(KeyError):
        pages["/0"]
    with pytest.raises(KeyError):
        del pages["/0"]
    pages["/0"] = 9
    del pages["/2"]
    assert (sorted(pages), sorted(pages.values())) == (["/0", "/3"], [3, 9])


def test_an_expired_value_is_no_part_of_what_is_reduced_next() -> None:
    clock = ManualClock()
    _, highest = bound(clock, ReducingState(max, int, name="highest", ttl=10))
    highest.add(9)
    clock.advance(10)
    assert highest.get() is None
    highest.add(1)
    assert highest.get() == 1


def test_a_clock_that_is_set_back_shows_nothing_again() -> None:
    clock = ManualClock()
    _, count = bound(clock, ValueState(int, default=0, name="count", ttl=10))
    count.update(1)
    clock.advance(10)
    assert count.value() == 0
    clock.set_wall_clock(clock.now() - 5)
    assert count.value() == 0


# -- cleaning -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("only_heap")
def test_a_sweep_deletes_what_has_expired_and_nothing_that_was_refreshed() -> None:
    clock = ManualClock()
    backend, count = bound(clock, ValueState(int, name="count", ttl=10))
    for number in range(100):
        backend.set_current_key(number)
        count.update(number)
    clock.advance(8)
    for number in range(0, 100, 2):
        backend.set_current_key(number)
        count.update(number)
    clock.advance(8)
    while backend.sweep_in is not None and backend.sweep_in <= 0:
        backend.sweep(7)
    assert sorted(backend.table("count").entries) == list(range(0, 100, 2))
    assert backend.sweep_in is not None
    assert 0 < backend.sweep_in <= 10
    clock.advance(backend.sweep_in)
    backend.sweep(1000)
    assert backend.table("count").entries == {}
    assert backend.sweep_in is None


@pytest.mark.usefixtures("only_heap")
def test_an_entry_that_is_cleared_and_written_for_ever_is_looked_at_once() -> None:
    clock = ManualClock()
    backend, count = bound(clock, ValueState(int, name="count", ttl=10))
    for _ in range(1000):
        count.update(1)
        count.clear()
    lifetime = backend.table("count").lifetime
    assert lifetime is not None
    clock.advance(11)
    assert lifetime.sweep(backend.table("count"), 1000) == 1


class Seen(KeyedProcessFunction[str, str, int]):
    seen = ValueState(int, default=0, ttl=10)

    def process(self, value: str, ctx: RuntimeContext) -> list[int]:
        self.seen.update(self.seen.value() + 1)
        return [self.seen.value()]


def harness_of(function: Any, **settings: Any) -> OperatorHarness:
    settings.setdefault("state_backend", Chosen.config)
    return OperatorHarness.of(lambda words: words.key_by(str).process("p", function), **settings)


@pytest.mark.usefixtures("only_heap")
def test_an_operator_cleans_up_without_any_record() -> None:
    with harness_of(Seen()) as harness:
        harness.push(["a", "b"])
        harness.clock.advance(5)
        harness.flush()
        assert harness._backend is not None
        assert len(harness._backend.table("seen").entries) == 2
        harness.clock.advance(6)
        harness.flush()
        assert harness._backend.table("seen").entries == {}


@pytest.mark.usefixtures("only_heap")
def test_many_that_expire_at_once_are_cleaned_in_slices_with_rests_between_them() -> None:
    with harness_of(Seen()) as harness:
        harness.push([f"{n}" for n in range(10_000)])
        assert harness._backend is not None
        entries = harness._backend.table("seen").entries
        harness.clock.advance(11)
        harness.flush()
        assert len(entries) == 8000
        harness.flush()  # too early
        assert len(entries) == 8000
        for _ in range(4):
            harness.clock.advance(0.001)
            harness.flush()
        assert len(entries) == 0
        assert harness._chain.flush_at is None


# -- event time ---------------------------------------------------------------------------------------------


class SeenInEventTime(Seen):
    seen = ValueState(int, default=0, ttl=StateTtl(10, time="event"))


def test_in_event_time_a_value_expires_for_a_record_that_is_late_enough() -> None:
    with harness_of(SeenInEventTime()) as harness:
        assert harness.push(["a", "a", "a"], [0, 9 * SECOND, 18 * SECOND]) == [1, 2, 3]
        assert harness.push(["a", "a"], [28 * SECOND, 5 * SECOND]) == [1, 2]


def test_in_event_time_the_watermark_cleans_up() -> None:
    with harness_of(SeenInEventTime()) as harness:
        harness.push(["a", "b"], [0, 5 * SECOND])
        harness.clock.advance(1000)
        harness.flush()
        assert harness.state("seen") == {"a": 1, "b": 1}
        harness.push_watermark(12 * SECOND)
        harness.flush()
        assert harness._backend is not None
        assert list(harness._backend.table("seen").entries) == ["b"]


def test_the_end_of_time_expires_nothing() -> None:
    with harness_of(SeenInEventTime()) as harness:
        harness.push(["a"], [0])
        harness.push_watermark((1 << 63) - 1)
        harness.flush()
        assert harness.state("seen") == {"a": 1}


def test_event_time_without_timestamps_is_refused_with_what_to_do() -> None:
    what = r"operator 'p' .* TTL in event time was used, but the record has no timestamp: .*\.py:\d+"
    with harness_of(SeenInEventTime()) as harness, pytest.raises(OperatorError, match=what):
        harness.push(["a"])


# -- snapshots ----------------------------------------------------------------------------------------------


def test_a_snapshot_holds_nothing_that_had_expired() -> None:
    clock, files = ManualClock(), Files()
    backend, count = bound(clock, ValueState(int, name="count", ttl=1000))
    for number in range(10):
        backend.set_current_key(number)
        count.update(number)
        clock.advance(1)
    take(backend, files, 1, -1)
    clock.advance(995.5)
    handle = take(backend, files, 2, 1)
    whole = backend.snapshot(3, 1, self_contained=True).finish(files)
    assert tables_of(files.read(whole.files[0]), whole.files[0]) == {"count": 4}
    for each in (handle, whole):
        restored, _ = again(clock, each, files, ValueState(int, name="count", ttl=1000))
        assert restored.contents("count") == {6: 6, 7: 7, 8: 8, 9: 9}


def test_a_value_expires_while_the_job_is_down() -> None:
    clock, files = ManualClock(), Files()
    backend, count = bound(clock, ValueState(int, default=0, name="count", ttl=10))
    count.update(1)
    handle = take(backend, files, 1, -1)
    clock.advance(9)
    assert again(clock, handle, files, ValueState(int, default=0, name="count", ttl=10))[1].value() == 1
    clock.advance(1)
    backend, count = again(clock, handle, files, ValueState(int, default=0, name="count", ttl=10))
    assert count.value() == 0
    clock.advance(1)
    backend.sweep(10)
    assert backend.table_names == ()


def test_another_ttl_counts_for_what_was_saved_too() -> None:
    clock, files = ManualClock(), Files()
    backend, count = bound(clock, ValueState(int, default=0, name="count", ttl=10))
    count.update(1)
    handle = take(backend, files, 1, -1)
    clock.advance(8)
    assert again(clock, handle, files, ValueState(int, default=0, name="count", ttl=5))[1].value() == 0
    clock.advance(8)
    assert again(clock, handle, files, ValueState(int, default=0, name="count", ttl=20))[1].value() == 1


@pytest.mark.parametrize("kind", [ValueState, MapState, ListState])
def test_a_state_that_gets_a_ttl_lives_from_the_restore_on(kind: Any) -> None:
    clock, files = ManualClock(), Files()
    backend, state = bound(clock, kind(name="s"))
    {ValueState: lambda: state.update(1), MapState: lambda: state.put(1, 1), ListState: lambda: state.add(1)}[
        kind
    ]()
    expected = backend.contents("s")
    handle = take(backend, files, 1, -1)
    clock.advance(1000)
    backend, _ = again(clock, handle, files, kind(name="s", ttl=10))
    assert backend.contents("s") == expected
    backend.sweep(10)
    handle = take(backend, files, 2, -1)
    clock.advance(9)
    assert again(clock, handle, files, kind(name="s", ttl=10))[0].contents("s") == expected
    clock.advance(1)
    assert again(clock, handle, files, kind(name="s", ttl=10))[0].contents("s") == {}


@pytest.mark.parametrize("kind", [ValueState, MapState])
def test_a_state_that_loses_its_ttl_keeps_what_it_has(kind: Any) -> None:
    clock, files = ManualClock(), Files()
    backend, state = bound(clock, kind(name="s", ttl=10))
    state.put("a", 1) if kind is MapState else state.update(1)
    first = take(backend, files, 1, -1)
    backend, _ = again(clock, first, files, kind(name="s"))
    expected = {"ann": {"a": 1}} if kind is MapState else {"ann": 1}
    assert backend.contents("s") == expected
    second = take(backend, files, 2, -1)
    clock.advance(1000)
    backend, _ = again(clock, second, files, kind(name="s"))
    assert backend.contents("s") == expected


@pytest.mark.parametrize("kind", [ValueState, ListState])
def test_a_ttl_in_another_time_begins_with_the_restore(kind: Any) -> None:
    """A stamp of one time means nothing in the other: the values would expire at once, or never."""
    clock, files = ManualClock(), Files()
    event, processing = kind(name="s", ttl=StateTtl(10, time="event")), kind(name="s", ttl=10)
    backend, state = bound(clock, event)
    backend.time.advance(5 * SECOND)
    state.add(1) if kind is ListState else state.update(1)
    expected = backend.contents("s")

    backend, _ = again(clock, take(backend, files, 1, -1), files, processing)
    assert backend.contents("s") == expected
    backend.sweep(10)
    handle = take(backend, files, 2, -1)
    clock.advance(9)
    assert again(clock, handle, files, processing)[0].contents("s") == expected
    back, _ = again(clock, handle, files, event)
    assert back.contents("s") == expected
    back.sweep(10)
    back.time.advance(15 * SECOND - 1)
    assert back.contents("s") == expected
    back.time.advance(15 * SECOND)
    assert back.contents("s") == {}
    clock.advance(1)
    assert again(clock, handle, files, processing)[0].contents("s") == {}


def test_values_with_a_ttl_are_checked_and_migrated() -> None:
    clock, files = ManualClock(), Files()
    backend, count = bound(clock, ValueState(str, name="count", ttl=10))
    count.update("12")
    handle = take(backend, files, 1, -1)
    clock.advance(4)
    backend, count = again(clock, handle, files, ValueState(int, name="count", ttl=10, migrate=int))
    assert count.value() == 12
    clock.advance(6)
    assert count.value() is None


# -- bad use ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ttl", [0, -1, 0.0, timedelta(0), timedelta(days=-1), float("nan"), float("inf"), "1h", True]
)
def test_a_ttl_is_longer_than_nothing(ttl: Any) -> None:
    what = r"ValueState \(.*test_time_to_live.py:\d+ .*\): ttl=.*: give a "
    with pytest.raises(ConfigurationError, match=what):
        ValueState(int, ttl=ttl)
    with pytest.raises(ConfigurationError, match=r"duration=.*: give a "):
        StateTtl(ttl)


def test_a_ttl_of_zero_that_is_asked_for_names_the_operator_and_the_line() -> None:
    class Asks(Seen):
        def open(self, ctx: RuntimeContext) -> None:
            ctx.value_state("late", ttl=0)

    with pytest.raises(
        OperatorError, match=r"operator 'p' .*ValueState 'late' .*ttl=0: give a finite duration.*\.py:\d+"
    ):
        harness_of(Asks())


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (
            lambda: StateTtl(1, refreshed_by="reads"),
            "refreshed_by is 'writes' or 'reads_and_writes', not 'reads'",
        ),  # type: ignore[arg-type]
        (
            lambda: StateTtl(1, time="events"),
            "time is 'processing' or 'event', not 'events'; did you mean 'event'",
        ),  # type: ignore[arg-type]
    ],
)
def test_a_setting_that_is_misspelt_is_answered_with_the_nearest_one(make: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        make()


def test_a_state_has_one_ttl() -> None:
    class Asks(Seen):
        def open(self, ctx: RuntimeContext) -> None:
            assert ctx.value_state("seen", 0, of_type=int, ttl=timedelta(seconds=10)) is self.seen
            ctx.value_state("seen", 0, of_type=int)

    with pytest.raises(OperatorError, match=r"value_state\('seen'\) already has ttl=.* and can't have None"):
        harness_of(Asks())


def test_the_graph_says_how_long_a_state_lives() -> None:
    env = StreamEnvironment("job")
    env.from_collection("words", ["a"]).key_by(str).process("p", SeenInEventTime())
    (info,) = env._builder.graph.nodes[-1].operator.states
    assert info.ttl == "0:00:10 after the last write, event time"
