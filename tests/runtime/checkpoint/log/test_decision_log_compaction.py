"""Logs that are compacted, cut short, deleted or damaged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from decision_log_setup import PATHS, SLOT, Flaky, begun, completed

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import (
    AttemptBegun,
    encode_record,
)
from penstock.runtime.checkpoint.log.slots import Claimed, Fenced, OutcomeUnknownError
from penstock.runtime.errors import CorruptSnapshotError, ObjectExistsError
from penstock.runtime.snapshot.storage import MemoryStorage


@pytest.fixture
def storage() -> Flaky:
    return Flaky()


def test_a_long_job_keeps_a_short_log(storage: Flaky) -> None:
    log = begun(storage, compact_every=10)
    for number in range(1, 200):
        assert isinstance(log.complete(completed(number, subsumes=(number - 1,))), Claimed)
    assert len(storage.list("job/log/")) < 25
    view = DecisionLog(storage, PATHS).replay()
    assert view == log.view
    assert view.completed == (completed(199),)
    assert view.highest_checkpoint_id == 199
    assert storage.list("job/log/")[0] == f"{SLOT}0"


def test_a_replay_reads_only_what_is_behind_the_newest_compaction(storage: Flaky) -> None:
    log = begun(storage, compact_every=10)
    for number in range(1, 100):
        log.complete(completed(number))
    before = storage.gets
    log.replay()
    assert storage.gets - before <= 11


def test_old_attempts_trip_over_the_slot_that_is_never_deleted(storage: Flaky) -> None:
    old = begun(storage)
    new = begun(storage, compact_every=2)
    for number in range(1, 50):
        new.complete(completed(number, 2))
    assert f"{SLOT}2" not in storage.list("job/log/")
    assert old.complete(completed(1)) == Fenced(2)


def in_doubt_and_compacted_away(storage: Flaky) -> DecisionLog:
    """A writer that does not know what became of checkpoint 1, whose record a newer attempt has deleted."""
    old = begun(storage)
    storage.failing_puts, storage.failing_gets, storage.happens = 1, 1, True
    with pytest.raises(OutcomeUnknownError):
        old.complete(completed(1))
    new = begun(storage, compact_every=2)
    for number in range(2, 50):
        new.complete(completed(number, 2))
    assert f"{SLOT}1" not in storage.list("job/log/")
    return old


def test_a_writer_whose_record_in_doubt_was_compacted_away_is_fenced(storage: Flaky) -> None:
    old = in_doubt_and_compacted_away(storage)
    before = DecisionLog(storage, PATHS).replay()
    assert old.newer_attempt() == 2
    with pytest.raises(OutcomeUnknownError, match="several puts into that slot were not answered"):
        old.complete(completed(50))
    assert old.complete(completed(51)) == Fenced(2)
    assert DecisionLog(storage, PATHS).replay() == before


def test_a_record_in_doubt_that_was_compacted_away_is_found_when_it_is_said_again(storage: Flaky) -> None:
    old = in_doubt_and_compacted_away(storage)
    assert old.complete(completed(1)) == Claimed(1)
    assert old.complete(completed(51)) == Fenced(2)


def test_a_record_in_doubt_stays_so_while_the_log_can_not_be_read(storage: Flaky) -> None:
    old = in_doubt_and_compacted_away(storage)
    storage.failing_gets = 1
    with pytest.raises(OutcomeUnknownError, match=r"slot 1 of .* counts"):
        old.complete(completed(50))
    with pytest.raises(OutcomeUnknownError, match="attempt 2 has compacted the log since"):
        old.complete(completed(50))
    assert old.complete(completed(51)) == Fenced(2)


def test_a_record_that_was_subsumed_before_its_writer_got_an_answer_was_in_the_log(storage: Flaky) -> None:
    old = begun(storage)

    def work() -> None:
        new = begun(storage, compact_every=2)
        for number in range(2, 20):
            new.complete(completed(number, 2, subsumes=(number - 1,)))

    storage.answer_lost = work
    assert old.complete(completed(1)) == Claimed(1)
    assert old.complete(completed(21)) == Fenced(2)


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_record_that_a_retry_below_the_storage_found_taken_was_in_the_log(
    storage: Flaky, is_kept: bool
) -> None:
    """The put is done, the client of the storage tries again, and meanwhile another attempt compacts."""
    old = begun(storage)

    def taken(path: str, data: bytes) -> None:
        new = begun(storage, compact_every=2)
        gone = () if is_kept else (1,)
        new.complete(completed(2, 2, subsumes=gone))
        assert new.view.compacted_at is not None
        raise ObjectExistsError(path)

    storage.interrupt(f"{SLOT}1", taken, fails=False)
    assert old.complete(completed(1)) == Claimed(1)
    assert old.complete(completed(3)) == Fenced(2)


def test_whoever_begins_in_a_deleted_slot_begins_again(storage: Flaky) -> None:
    worker = begun(storage, compact_every=2)
    worker.complete(completed(1))
    sleeper = DecisionLog(storage, PATHS)

    def work() -> None:
        for number in range(2, 30):
            worker.complete(completed(number))

    storage.before_put = work
    assert sleeper.begin_attempt(2.0) == AttemptBegun(2, 29, 2.0)
    assert sleeper.replay().last_attempt == 2
    assert worker.complete(completed(30)) == Fenced(2)


def compact(log: DecisionLog, from_id: int, attempt: int) -> int:
    """Complete checkpoints until the log was compacted three times; returns the next id."""
    seen = {log.view.compacted_at}
    while len(seen) < 4:
        log.complete(completed(from_id, attempt))
        seen.add(log.view.compacted_at)
        from_id += 1
    return from_id


def test_a_compaction_that_is_put_again_after_it_was_deleted_makes_no_second_owner(storage: Flaky) -> None:
    """The first put of a compaction hangs in the network. The second one counts, until the first lands."""
    owner = begun(storage, compact_every=4)
    for number in (1, 2):
        owner.complete(completed(number))
    late = encode_record(owner.view.after(completed(3)).compacted(5.0))
    owner.complete(completed(3))
    assert owner.view.compacted_at == 4
    sleeper = DecisionLog(storage, PATHS)

    def work() -> None:
        number = compact(owner, 4, 1)
        storage.put(f"{SLOT}4", late, create=True)
        owner.complete(completed(number))

    storage.before_put = work
    sleeper.begin_attempt(2.0)
    assert DecisionLog(storage, PATHS).replay() == sleeper.view
    assert owner.complete(completed(50)) == Fenced(2)
    assert isinstance(sleeper.complete(completed(51, 2)), Claimed)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_writer_that_slept_while_it_compacted_and_puts_again_makes_no_second_owner(
    storage: Flaky, is_answered: bool
) -> None:
    """Its first put was done, another attempt took over and deleted it, and the second one works."""
    old = begun(storage, compact_every=4)
    sleeper, new = DecisionLog(storage, PATHS), DecisionLog(storage, PATHS, compact_every=4)

    def sleep(path: str, data: bytes) -> None:
        assert new.begin_attempt(2.0) == AttemptBegun(2, 3, 2.0)
        storage.before_put = lambda: wake(path, data)
        sleeper.begin_attempt(3.0)

    def wake(path: str, data: bytes) -> None:
        compact(new, 4, 2)
        assert path not in storage.list("job/log/")
        storage.put(path, data, create=True)

    storage.interrupt(f"{SLOT}4", sleep, fails=not is_answered)
    for number in (1, 2, 3):
        assert old.complete(completed(number)) == Claimed(number)
    assert sleeper.attempt == 3
    assert sleeper.view == DecisionLog(storage, PATHS).replay()
    assert old.complete(completed(50)) == Fenced(3)
    assert new.complete(completed(51, 2)) == Fenced(3)


def test_a_compaction_that_names_itself_as_the_one_before_is_damage(storage: Flaky) -> None:
    log = begun(storage, compact_every=4)
    for number in (1, 2, 3):
        log.complete(completed(number))
    endless = replace(log.view, compacted_at=4).compacted(5.0)
    storage.put(f"{SLOT}4", encode_record(endless))
    with pytest.raises(CorruptSnapshotError, match="it names slot 4 as the compaction before it"):
        DecisionLogReader(storage, PATHS).compactions_before(4)


def test_records_that_are_written_while_a_replay_lists_are_no_gap(storage: Flaky) -> None:
    log = begun(storage, compact_every=4)
    for number in (1, 2, 3):
        log.complete(completed(number))
    assert log.view.compacted_at == 4
    ids = iter(range(4, 100))

    class Busy(MemoryStorage):
        def get(self, path: str) -> bytes:
            return storage.get(path)

        def list(self, prefix: str) -> list[str]:
            for _ in range(2):
                log.complete(completed(next(ids)))
            return storage.list(prefix)

    assert DecisionLogReader(Busy(), PATHS).replay().next_slot == log.view.next_slot


def test_a_compaction_that_fails_is_made_good(storage: Flaky) -> None:
    log = begun(storage, compact_every=4)
    log.complete(completed(1))
    log.complete(completed(2))
    storage.working_puts, storage.failing_puts = 1, 3
    assert log.complete(completed(3)) == Claimed(3)
    assert log.view.compacted_at is None
    log.complete(completed(4))
    assert log.view.compacted_at is not None
    assert log.replay() == log.view


def test_a_missing_record_is_named(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(1))
    log.complete(completed(2))
    storage.delete([f"{SLOT}1"])
    with pytest.raises(CorruptSnapshotError, match=r"memory:/job/log/0+1 is missing from the decision log"):
        log.replay()


def test_a_log_that_was_deleted_under_its_writer_is_not_begun_again(storage: Flaky) -> None:
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(1.0)
    log.begin_attempt(2.0)
    storage.delete(storage.list("job/log/"))
    with pytest.raises(CorruptSnapshotError, match=r"has lost records: attempt 2 .* ends with attempt 0"):
        log.begin_attempt(3.0)
    assert storage.list("job/log/") == []


def test_a_log_without_an_attempt_that_is_known_to_have_begun_is_not_begun_again(storage: Flaky) -> None:
    DecisionLog(storage, PATHS).begin_attempt(1.0)
    later = DecisionLog(storage, PATHS)
    with pytest.raises(CorruptSnapshotError, match="attempt 3 of the job had begun"):
        later.begin_attempt(2.0, known_attempt=3)
    assert later.begin_attempt(2.0, known_attempt=1) == AttemptBegun(2, None, 2.0)


def test_a_damaged_record_is_named(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(1))
    storage.put(f"{SLOT}1", b"nonsense" * 9)
    with pytest.raises(CorruptSnapshotError, match=r"memory:/job/log/0+1 should be a record"):
        log.replay()


def test_other_files_in_the_folder_do_no_harm(storage: Flaky) -> None:
    storage.put("job/log/notes.txt", b"")
    log = begun(storage)
    assert log.replay().next_slot == 1


def test_a_storage_that_overwrites_is_found_out(storage: Flaky) -> None:
    begun(storage)
    log = begun(storage)
    storage.put(f"{SLOT}2", encode_record(completed(1, 1)))
    with pytest.raises(CorruptSnapshotError, match="must refuse to create an existing file"):
        log.complete(completed(1, 2))


def test_a_log_that_compacts_all_the_time_is_refused(storage: Flaky) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        DecisionLog(storage, PATHS, compact_every=1)
