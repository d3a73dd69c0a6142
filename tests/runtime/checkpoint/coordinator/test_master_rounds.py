"""`MasterSnapshots` by itself: when a round is over, and what becomes of late answers."""

from __future__ import annotations

from typing import Any

from masters_setup import A, B, World

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequest
from penstock.runtime.checkpoint.coordinator.starts import MasterSnapshots
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason


class Round:
    """The masters of a job with two operator coordinators, and a checkpoint that asks them."""

    def __init__(self, hooks: Any = ()) -> None:
        self.world = World(hooks=hooks)
        self.masters = MasterSnapshots(self.world.operator_coordinators, self.world.hooks)
        self.said: list[str] = []
        self.pending = PendingCheckpoint(
            CheckpointBarrier(1, 0.0, CheckpointOptions(), -1),
            CheckpointPlan((A, B), (A, B), (A, B)),
            CheckpointRequest(1),
            attempt=1,
            started_at=0.0,
            coordinators=["a", "b"],
            masters=dict(hooks),
        )

    def take(self) -> None:
        self.masters.take(self.pending, lambda: self.said.append("taken"), self.said.append)
        self.world.runner.run_all()


def test_no_round_is_over_before_the_first_has_begun() -> None:
    assert Round().masters.stop() is False


def test_round_that_is_stopped_is_over_and_opens_the_valves() -> None:
    asked = Round()
    asked.world.coordinators["b"].is_slow = True
    asked.take()
    assert not asked.world.open_valves()
    assert asked.masters.stop() is True
    assert asked.world.open_valves()
    assert asked.masters.stop() is False


def test_round_is_over_when_the_sources_have_their_barriers() -> None:
    asked = Round()
    asked.take()
    assert asked.said == ["taken"]
    asked.masters.barriers_injected(1)
    assert asked.world.open_valves()
    assert asked.masters.stop() is False


def test_hook_that_answers_after_the_round_was_stopped_is_not_heard() -> None:
    asked = Round(hooks={"outside": {"state": "file"}})
    asked.masters.take(asked.pending, lambda: asked.said.append("taken"), asked.said.append)
    asked.masters.stop()
    asked.world.runner.run_all()
    assert asked.said == []
    assert asked.pending.missing_masters == {"outside"}


def test_hook_that_answers_for_an_aborted_checkpoint_fails_the_round_that_is_open() -> None:
    asked = Round(hooks={"outside": {"state": "file"}})
    asked.masters.take(asked.pending, lambda: asked.said.append("taken"), asked.said.append)
    asked.pending.abort(Reason.CHECKPOINT_EXPIRED)
    asked.world.runner.run_all()
    assert asked.said == ["the checkpoint was aborted meanwhile"]
