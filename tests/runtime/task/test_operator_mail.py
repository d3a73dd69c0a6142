"""An event keeps its place among the checkpoints that were asked for."""

from __future__ import annotations

from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.task.coordinator_mail import OperatorMail


def barrier(checkpoint_id):
    return CheckpointBarrier(checkpoint_id, 0.0)


def test_an_event_waits_for_the_checkpoints_that_were_asked_for_before_it_came():
    got, asked = [], []
    mail = OperatorMail(got.append, asked)
    mail.receive("before")
    asked.append(barrier(1))
    mail.receive("behind 1")
    asked.append(barrier(2))
    mail.receive("behind 2")
    assert got == ["before"]
    del asked[0]
    mail.deliver_due()
    assert got == ["before", "behind 1"]
    del asked[0]
    mail.deliver_due()
    assert got == ["before", "behind 1", "behind 2"]


def test_a_later_event_never_overtakes_one_that_waits():
    got, asked = [], [barrier(1)]
    mail = OperatorMail(got.append, asked)
    mail.receive("first")
    asked.clear()
    mail.receive("second")
    assert got == ["first", "second"]
