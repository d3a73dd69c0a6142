"""The actor that keeps collected rows; `tests/on_ray/test_collect.py` tests it with jobs."""

from __future__ import annotations

import pytest

from penstock.actors.client.collect import CollectorActor
from penstock.runtime.io.connectors.collect_sink import CollectKey


def key(
    number: int, *, subtask: int = 0, attempt: int = 1, operator: str = "out", job: str = "j"
) -> CollectKey:
    return job, operator, subtask, attempt, number


def test_a_repeated_transaction_is_ignored() -> None:
    actor = CollectorActor()
    actor.add(key(0), b"first")
    actor.add(key(0), b"again")
    assert actor.rows(0) == [b"first"]


@pytest.mark.parametrize(
    "other", [key(1), key(0, subtask=1), key(0, attempt=2), key(0, operator="other"), key(0, job="k")]
)
def test_transactions_of_other_subtasks_attempts_sinks_and_jobs_are_their_own(other: CollectKey) -> None:
    actor = CollectorActor()
    actor.add(key(0), b"one")
    actor.add(other, b"two")
    assert actor.rows(0) == [b"one", b"two"]


def test_only_new_transactions_are_returned() -> None:
    actor = CollectorActor()
    for number in range(3):
        actor.add(key(number), bytes([number]))
    assert actor.rows(2) == [b"\x02"]
    assert actor.rows(3) == []
