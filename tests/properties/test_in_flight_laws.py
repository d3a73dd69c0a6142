"""The laws of unaligned checkpoints, alone, with a timeout and beside savepoints, under random interleavings.

Arrival and consumption are separate random choices; frames arrive early, late and twice. PENSTOCK_DEEP=N
takes N times as many examples.

* F1 to F4 as in `test_barrier_laws`, but an unaligned checkpoint may be aborted after its trigger.
* A1 an aligned trigger has exactly the cut delivered.
* U1 nothing is persisted twice, before the trigger, after an abort, after its delivery or from behind a
  barrier.
* U2 a complete checkpoint is the cut. On every channel, the elements delivered before the trigger and then
  the persisted ones are exactly those in front of the barrier. On a channel without the barrier, they are all
  elements. A sender may leave the checkpoint out and send the barrier of a newer one. Then they are at least
  those in front of that. Such a sender never acknowledges the older one.
* U3 a clean run triggers every checkpoint; each is complete or subsumed, the last one complete.

Elements that were in flight at a restore come first, and all laws hold with them.
"""

from __future__ import annotations

from channel_streams import Stream
from deep import DEEP
from hypothesis import given, settings
from in_flight_runs import COUNTS, SUBSUMED, Plan, Run, plans


@settings(max_examples=120 * DEEP)
@given(plans())
def test_laws_hold_for_barriers_cancellations_gaps_and_ends(plan: Plan) -> None:
    Run(plan).play()


@settings(max_examples=80 * DEEP)
@given(plans(kinds=True, cancels=False))
def test_laws_hold_for_checkpoints_and_savepoints_in_any_order(plan: Plan) -> None:
    Run(plan).play()


def test_a_checkpoint_that_a_sender_left_out_holds_what_is_in_front_of_the_next_barrier_there() -> None:
    streams: list[Stream] = [[None], [0, 1, 3, "1.3", None], [0, 1, 2, 3], [0, 1, 2, 3]]
    run = Run(Plan(streams, [(0, 0, 1)], COUNTS, savepoints=frozenset([3]))).play()
    assert 2 in run.complete


@settings(max_examples=70 * DEEP)
@given(plans(clean=True))
def test_clean_run_completes_or_subsumes_every_checkpoint_and_completes_the_last(plan: Plan) -> None:
    run = Run(plan).play()
    ids = [entry for entry in plan.streams[0] if isinstance(entry, int)]
    assert set(run.aborted.values()) <= {SUBSUMED}, "U3"
    done = set(run.complete) | set(run.at_trigger) - run.unaligned
    if not any(what == 1 for what, _, _ in plan.schedule):
        # A barrier that overtakes an older one in the network makes that one old before it is seen.
        assert sorted([*done, *run.aborted]) == ids, "U3"
        if plan.timeout is None and not plan.aligned_channels:
            assert sorted(run.at_trigger) == ids, "U3"
    if ids:
        assert ids[-1] in done, "U3"
    assert run.gate.blocked_channels == ()
