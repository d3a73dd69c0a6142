"""Checkpoints that a simulated job may start from."""

from __future__ import annotations

import pytest

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.testing.simulation.world.faults import FaultCounts, FaultKind
from penstock.runtime.testing.simulation.world.watches import Damage, Fallbacks

DAMAGED = "j/chk-7-1/metadata"


def checkpoint(number: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(number, 1, SnapshotKind.CHECKPOINT, {}, 1.0, 2.0)


def watched(*, allow_older: bool, is_damaged: bool) -> tuple[Fallbacks, list[int | None]]:
    damage, taken_back = Damage(), list[int | None]()
    if is_damaged:
        damage[DAMAGED] = FaultKind.METADATA_GONE
    fallbacks = Fallbacks(damage, FaultCounts())
    fallbacks.watch(lambda job, attempt, older: taken_back.append(older), allow_older=allow_older)
    fallbacks.completed("j", 1, 6)
    fallbacks.completed("j", 2, 7)
    return fallbacks, taken_back


@pytest.mark.parametrize(("allow_older", "is_damaged"), [(False, False), (True, False), (False, True)])
def test_an_older_checkpoint_is_a_violation_without_leave_or_damage(
    allow_older: bool, is_damaged: bool
) -> None:
    fallbacks, _ = watched(allow_older=allow_older, is_damaged=is_damaged)
    fallbacks.deployed("j", 2, checkpoint(7))
    with pytest.raises(AssertionError, match="starts from checkpoint 6, although 7 is complete"):
        fallbacks.deployed("j", 3, checkpoint(6))


def test_the_world_is_taken_back_to_an_older_checkpoint_that_damage_makes_necessary() -> None:
    fallbacks, taken_back = watched(allow_older=True, is_damaged=True)
    fallbacks.deployed("j", 2, checkpoint(6))
    fallbacks.deployed("j", 3, checkpoint(7))
    assert taken_back == [6, None]


def test_an_attempt_that_a_later_one_has_fenced_may_start_from_anything() -> None:
    fallbacks, _ = watched(allow_older=False, is_damaged=False)
    fallbacks.deployed("j", 1, checkpoint(6))
