"""Slots that are cut off, damaged, listed late, or written without an answer."""

from __future__ import annotations

from contextlib import suppress

import pytest
from decision_log_setup import PATHS, SLOT, Flaky, begun, completed

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun, JobEnded, decode_record, encode_record
from penstock.runtime.checkpoint.log.slots import Claimed, Fenced
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError, ObjectExistsError, StorageError
from penstock.runtime.snapshot.sealed_file import IncompleteFileError
from penstock.runtime.snapshot.storage import MemoryStorage


@pytest.fixture
def storage() -> Flaky:
    return Flaky()


RECORD = encode_record(JobEnded("finished", None, 2, 0.0))


def test_a_record_that_is_cut_off_anywhere_is_told_from_a_damaged_one() -> None:
    for length in range(len(RECORD)):
        with pytest.raises(IncompleteFileError, match=f"is cut off after {length} bytes"):
            decode_record(RECORD[:length], "x")


def test_whatever_bit_flips_no_whole_record_looks_cut_off() -> None:
    for bit in range(len(RECORD) * 8):
        flipped = bytearray(RECORD)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptSnapshotError) as caught:
            decode_record(bytes(flipped), "x")
        assert not isinstance(caught.value, IncompleteFileError), f"bit {bit}"


def cut_off(storage: Flaky, slot: int, length: int = 20) -> None:
    MemoryStorage.put(storage, f"{SLOT}{slot}", RECORD[:length])


@pytest.mark.parametrize("length", [0, 5, 20, 40])
def test_a_newest_slot_that_is_cut_off_is_passed_over_by_the_next_attempt(
    storage: Flaky, length: int
) -> None:
    log = begun(storage)
    log.complete(completed(1))
    cut_off(storage, 2, length)
    successor = DecisionLog(storage, PATHS)
    assert successor.replay().to_pass == (2,)
    assert successor.begin_attempt(2.0) == AttemptBegun(3, 1, 2.0)
    assert successor.view.next_slot == 4
    assert successor.replay() == successor.view
    assert log.complete(completed(2)) == Fenced(3)
    assert log.newer_attempt() == 3


def test_a_writer_whose_own_slot_was_cut_off_goes_on_behind_it(storage: Flaky) -> None:
    log = begun(storage)
    cut_off(storage, 1)
    assert log.complete(completed(1)) == Claimed(2)
    assert log.replay() == log.view
    assert log.newer_attempt() is None


def test_a_slot_that_was_passed_over_has_no_effect_even_if_it_can_be_read_again(storage: Flaky) -> None:
    log = begun(storage)
    cut_off(storage, 1)
    assert log.complete(completed(7)) == Claimed(2)
    MemoryStorage.put(storage, f"{SLOT}1", RECORD)
    assert log.replay() == log.view
    assert log.replay().ended is None


def test_a_cut_off_slot_that_a_later_record_counts_on_is_damage(storage: Flaky) -> None:
    log = begun(storage)
    log.complete(completed(1))
    log.complete(completed(2))
    cut_off(storage, 1)
    with pytest.raises(CorruptSnapshotError, match=f"{SLOT}1 should be a record .* is cut off"):
        log.replay()


def test_slots_that_are_passed_over_are_never_deleted(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    cut_off(storage, 1)
    for number in range(1, 20):
        log.complete(completed(number))
    kept = {path for path in storage.list("job/log/") if PATHS.slot_of(path) is not None}
    assert {f"{SLOT}0", f"{SLOT}1"} < kept
    assert f"{SLOT}2" not in kept
    assert log.replay() == log.view


def damaged(storage: Flaky, slot: int) -> None:
    damaged_file(storage, PATHS.log_slot(slot))


def damaged_file(storage: Flaky, path: str) -> None:
    data = bytearray(storage.get(path))
    data[-1] ^= 1
    MemoryStorage.put(storage, path, bytes(data))


@pytest.mark.parametrize("slot", [1, 2, 3])
def test_a_damaged_slot_is_named_and_passed_over_only_where_the_user_allows_it(
    storage: Flaky, slot: int
) -> None:
    log = begun(storage)
    for number in (1, 2, 3):
        log.complete(completed(number))
    damaged(storage, slot)
    with pytest.raises(CorruptSnapshotError, match=rf"{SLOT}{slot} .* does not match its checksum"):
        DecisionLog(storage, PATHS).begin_attempt(2.0)
    allowed = DecisionLog(storage, PATHS, allow_damaged=True)
    assert isinstance(allowed.begin_attempt(2.0), AttemptBegun)
    assert [c.checkpoint_id for c in allowed.view.completed] == [n for n in (1, 2, 3) if n != slot]
    assert [f"{SLOT}{slot}" in lost for lost in allowed.lost] == [True]
    assert DecisionLog(storage, PATHS).replay() == allowed.view, "the log itself says now that it is passed"


def test_the_number_of_an_attempt_whose_record_is_damaged_is_not_given_again(storage: Flaky) -> None:
    begun(storage)
    begun(storage)
    damaged(storage, 1)
    log = DecisionLog(storage, PATHS, allow_damaged=True)
    record = log.begin_attempt(3.0)
    assert isinstance(record, AttemptBegun)
    assert record.attempt == 3


def test_a_damaged_compaction_is_made_good_by_the_one_before(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 9):
        log.complete(completed(number))
    newest = log.view.compacted_at
    assert newest is not None
    damaged(storage, newest)
    allowed = DecisionLog(storage, PATHS, allow_damaged=True)
    allowed.begin_attempt(2.0)
    assert allowed.view.completed == log.view.completed
    assert allowed.view.begun_slots[:1] == log.view.begun_slots


def test_damage_of_the_only_compaction_is_named_even_where_damage_is_allowed(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 4):
        log.complete(completed(number))
    assert log.view.compacted_at == 3
    damaged(storage, 3)
    with pytest.raises(CorruptSnapshotError, match=rf"{SLOT}3 .* does not match its checksum"):
        DecisionLog(storage, PATHS, allow_damaged=True).begin_attempt(2.0)


@pytest.mark.parametrize("allow_damaged", [False, True])
def test_damage_of_the_only_compaction_and_of_the_hint_is_named(storage: Flaky, allow_damaged: bool) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 4):
        log.complete(completed(number))
    assert log.view.compacted_at == 3
    damaged(storage, 3)
    damaged_file(storage, PATHS.log_hint)
    with pytest.raises(CorruptSnapshotError, match=rf"{SLOT}3 .* does not match its checksum"):
        DecisionLog(storage, PATHS, allow_damaged=allow_damaged).begin_attempt(2.0)


def test_damage_of_all_compactions_and_of_the_hint_is_named(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 12):
        log.complete(completed(number))
    newest = log.view.compacted_at
    assert newest is not None
    before = log._reader.compactions_before(newest)
    assert before
    for slot in (newest, *before):
        damaged(storage, slot)
    damaged_file(storage, PATHS.log_hint)
    with pytest.raises(CorruptSnapshotError, match=rf"{SLOT[:-1]}{newest:02} .* does not match its checksum"):
        DecisionLog(storage, PATHS, allow_damaged=True).begin_attempt(2.0)


class Listing(MemoryStorage):
    """Lists what was there once."""

    def __init__(self, storage: MemoryStorage, listing: list[str]) -> None:
        super().__init__()
        self._objects = storage._objects
        self._listing = listing

    def list(self, prefix: str) -> list[str]:
        return self._listing


@pytest.mark.parametrize("listed", [0, 1, 2, 4])
def test_a_listing_that_is_many_compactions_old_makes_no_second_owner(storage: Flaky, listed: int) -> None:
    log = begun(storage, compact_every=2)
    for number in range(1, 40):
        log.complete(completed(number))
    stale = Listing(storage, [f"{SLOT}{slot}" for slot in range(listed)])
    successor = DecisionLog(stale, PATHS)
    assert successor.begin_attempt(2.0) == AttemptBegun(2, 39, 2.0)
    assert log.complete(completed(40)) == Fenced(2)


def test_an_old_hint_is_an_error_or_leads_to_the_end_and_never_to_a_second_owner(storage: Flaky) -> None:
    log = begun(storage, compact_every=2)
    hints = set()
    for number in range(1, 12):
        log.complete(completed(number))
        hints.add(storage.get(PATHS.log_hint) if number > 1 else None)
    ends = []
    for hint in hints - {None}:
        MemoryStorage.put(storage, PATHS.log_hint, hint)
        with suppress(CorruptSnapshotError):  # it says that a slot is missing: the hint's compaction is gone
            ends.append(DecisionLog(Listing(storage, [f"{SLOT}0"]), PATHS).replay())
    assert ends
    assert all(end == log.view for end in ends)


def test_an_old_hint_whose_compaction_is_gone_stops_nobody_and_is_mended(storage: Flaky) -> None:
    """A writer slept between its compaction and the hint, and wakes up when others have compacted."""
    log = begun(storage, compact_every=2)
    for number in (1, 2):
        log.complete(completed(number))
    old = storage.get(PATHS.log_hint)
    for number in range(3, 20):
        log.complete(completed(number))
    MemoryStorage.put(storage, PATHS.log_hint, old)

    assert log.replay() == log.view
    assert DecisionLog(storage, PATHS).begin_attempt(2.0) == AttemptBegun(2, 19, 2.0)
    assert storage.get(PATHS.log_hint) != old
    assert DecisionLog(Listing(storage, [f"{SLOT}0"]), PATHS).replay().last_attempt == 2


def test_a_damaged_hint_is_no_danger_and_is_mended(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 20):
        log.complete(completed(number))
    hint = storage.get(PATHS.log_hint)
    MemoryStorage.put(storage, PATHS.log_hint, hint[:-1] + b"?")
    assert log.replay() == log.view
    with pytest.raises(CorruptSnapshotError, match="is missing"):
        DecisionLog(Listing(storage, [f"{SLOT}0"]), PATHS).begin_attempt(2.0)
    for number in range(20, 24):
        log.complete(completed(number))
    assert storage.get(PATHS.log_hint)[:8] == b"PENSTKLH"
    assert DecisionLog(Listing(storage, []), PATHS).replay() == log.view


def test_a_log_that_was_compacted_without_a_hint_is_read_and_gets_one(storage: Flaky) -> None:
    log = begun(storage, compact_every=3)
    for number in range(1, 20):
        log.complete(completed(number))
    storage.delete([PATHS.log_hint])
    assert log.replay() == log.view
    DecisionLog(storage, PATHS).begin_attempt(2.0)
    assert DecisionLog(Listing(storage, []), PATHS).replay().last_attempt == 2


class LostAnswers(Flaky):
    """The first put of each object is done; what is below the storage puts again and reports a conflict."""

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        super().put(path, data, create=create)
        if create:
            msg = "exists already"
            raise ObjectExistsError(msg)


def test_writes_whose_answers_were_lost_are_known_as_the_own_ones() -> None:
    storage = LostAnswers()
    log = DecisionLog(storage, PATHS, writer="one")
    assert log.begin_attempt(1.0, is_new=True) == AttemptBegun(1, None, 1.0, writer="one")
    assert log.complete(completed(1)) == Claimed(1)
    assert log.end("finished", None, 2.0) == Claimed(2)


def test_the_same_record_of_another_writer_is_not_taken_for_the_own_one() -> None:
    storage = LostAnswers()
    DecisionLog(storage, PATHS, writer="one").begin_attempt(1.0)
    with pytest.raises(JobIdTakenError):
        DecisionLog(storage, PATHS, writer="other").begin_attempt(1.0, is_new=True)


def test_a_record_that_others_read_and_deleted_between_two_tries_of_its_claim_was_in_the_log(
    storage: Flaky,
) -> None:
    old = begun(storage, compact_every=2)
    put, tries = storage.put, []

    def first_answer_lost(path: str, data: bytes, *, create: bool = False) -> None:
        put(path, data, create=create)
        if not tries:
            tries.append(path)
            new = begun(storage, compact_every=2)
            for number in range(20, 40):
                new.complete(completed(number, 2))
            raise StorageError("no answer")

    storage.put = first_answer_lost  # type: ignore[method-assign]
    assert old.drop((), 3.0) == Claimed(1)
    assert old.drop((), 4.0) == Fenced(2)
