"""Expired entries in RocksDB: found by looking through, some at a time, and left out of savepoints."""

from __future__ import annotations

from typing import Any

import pytest
from rocksdb_setup import Files, opened, restored, savepoint, take

from penstock import ListState, MapState, StateTtl, ValueState
from penstock.runtime.state.keyed_chunk import tables_of
from penstock.runtime.testing.manual_time import ManualClock

SECOND = 1_000_000


def on_disk(backend: Any, table: str = "s") -> int:
    cached = backend.table(table, nested=backend._tables[table].nested).cached
    cached.write_back()
    return sum(1 for group in cached.key_groups for _ in cached.database.scan(cached.rows.begin(group)))


def sweep_whole(backend: Any) -> None:
    """As the task does: one slice, and another as long as it is due."""
    while backend.sweep_in is not None and backend.sweep_in <= 0:
        backend.sweep(7)


@pytest.mark.parametrize("kind", [ValueState, ListState, MapState])
def test_what_has_expired_leaves_the_disk_and_what_was_used_again_stays(kind: Any) -> None:
    clock = ManualClock()
    backend = opened(clock=clock)
    state = backend.bind(kind(name="s", ttl=10))

    def use(numbers: range) -> None:
        for number in numbers:
            backend.set_current_key(number)
            {ValueState: lambda: state.update(1), ListState: lambda: state.add(1)}.get(
                kind, lambda: state.put("a", 1)
            )()

    use(range(50))
    sweep_whole(backend)
    clock.advance(8)
    use(range(0, 50, 2))
    if kind is not ListState:  # elements of a list expire one by one
        clock.advance(8)
        sweep_whole(backend)
        assert on_disk(backend) == 25
    clock.advance(20)
    sweep_whole(backend)
    assert on_disk(backend) == 0
    assert backend.sweep_in is not None
    assert 0 < backend.sweep_in <= 10


def test_a_sweep_looks_at_so_many_entries_and_goes_on_where_it_was() -> None:
    clock = ManualClock()
    backend = opened(clock=clock)
    state = backend.bind(ValueState(int, name="s", ttl=10))
    for number in range(100):
        backend.set_current_key(number)
        state.update(number)
    clock.advance(11)
    left = []
    while backend.sweep_in <= 0:
        backend.sweep(30)
        left.append(on_disk(backend))
    assert left == [70, 40, 10, 0]


def test_in_event_time_only_a_watermark_begins_a_sweep() -> None:
    clock = ManualClock()
    backend = opened(clock=clock)
    state = backend.bind(ValueState(int, name="s", ttl=StateTtl(10, time="event")))
    assert backend.sweep_in is None
    backend.time.advance(0)
    backend.set_current_key("ann")
    state.update(1)
    sweep_whole(backend)
    assert backend.sweep_in is None
    backend.time.advance(30 * SECOND)
    assert backend.sweep_in == 0
    sweep_whole(backend)
    assert on_disk(backend) == 0


def test_a_savepoint_holds_nothing_that_had_expired() -> None:
    clock, files = ManualClock(), Files()
    backend = opened(clock=clock)
    state = backend.bind(ValueState(int, name="s", ttl=10))
    for number in range(10):
        backend.set_current_key(number)
        state.update(number)
        clock.advance(1)
    clock.advance(5)
    (file,) = savepoint(backend, files, 1).files
    assert tables_of(files.read(file), file) == {"s": 4}


def test_a_state_that_gets_a_ttl_or_loses_it_is_rewritten_on_disk() -> None:
    clock, files = ManualClock(), Files()
    backend = opened(clock=clock)
    state = backend.bind(MapState(name="s"))
    for number in range(300):
        backend.set_current_key(number)
        state.put("a", number)
    expected = backend.contents("s")
    for ttl in (10, None):
        handle = savepoint(backend, files, 1 if ttl else 2)
        again = opened(clock=clock)
        again.restore([handle], files)
        again.bind(MapState(name="s", ttl=ttl))
        sweep_whole(again)
        assert again.contents("s") == expected
        backend = again
    assert restored([savepoint(backend, files, 3)], files).table("s", nested=True).entries == expected


def with_expired(kind: Any, files: Files, *, event: bool = True) -> Any:
    """A checkpoint in the files of RocksDB that still has an entry of 0 s, which expired at 100 s."""
    clock = ManualClock(start=0)
    backend = opened(clock=clock)
    view = backend.bind(kind(int, name="s", ttl=StateTtl(100, time="event" if event else "processing")))
    advance(backend, clock, 0)
    use(backend, view, "old")
    advance(backend, clock, 120)
    use(backend, view, "new")
    return take(backend, files, 1)


def advance(backend: Any, clock: ManualClock, seconds: int) -> None:
    clock.set_wall_clock(seconds)
    backend.time.advance(seconds * SECOND)


def use(backend: Any, view: Any, key: str) -> None:
    backend.set_current_key(key)
    view.update(1) if isinstance(view, ValueState) else view.add(1)


@pytest.mark.parametrize("kind", [ValueState, ListState])
@pytest.mark.parametrize("ttl", [StateTtl(100, time="event"), StateTtl(1_000, time="event"), 1_000, None])
def test_what_had_expired_stays_out_of_sight_whatever_ttl_the_next_version_has(kind: Any, ttl: Any) -> None:
    files = Files()
    backend = restored([with_expired(kind, files)], files, restored_id=1, clock=ManualClock(start=130))
    backend.bind(kind(int, name="s", ttl=ttl))
    assert backend.keys("s") == ["new"]


@pytest.mark.parametrize("event", [False, True])
@pytest.mark.parametrize("is_savepoint", [False, True])
def test_what_had_expired_stays_out_of_sight_when_a_run_has_not_used_the_state(
    event: bool, is_savepoint: bool
) -> None:
    files = Files()
    between = restored(
        [with_expired(ValueState, files, event=event)], files, restored_id=1, clock=ManualClock(start=130)
    )
    handle = savepoint(between, files, 2) if is_savepoint else take(between, files, 2)
    backend = restored([handle], files, restored_id=None if is_savepoint else 2, clock=ManualClock(start=130))
    backend.bind(ValueState(int, name="s", ttl=StateTtl(1_000, time="event" if event else "processing")))
    assert backend.keys("s") == ["new"]


def test_what_had_expired_stays_out_of_sight_under_a_new_name() -> None:
    files = Files()
    backend = restored([with_expired(ValueState, files)], files, restored_id=1, clock=ManualClock(start=130))
    renamed = ValueState(int, name="renamed", renamed_from="s", ttl=StateTtl(1_000, time="event"))
    backend.rename(renamed)
    backend.bind(renamed)
    assert backend.keys("renamed") == ["new"]
