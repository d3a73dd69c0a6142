"""The end of a micro-batch induces a checkpoint of the job, and Spark's commit waits for it.

Spark may commit a micro-batch only when a completed checkpoint covers it. Waiting for the periodic one would
let every micro-batch take a whole period, and none end in a job whose period is an hour. So the source is
externally induced: whoever hands micro-batches over asks the JobMaster for a checkpoint as soon as one that
starts now covers the micro-batch. That is when all of its rows have come (it is closed in all depots) and
every reader has given its part on to the job and knows that it has ended (it *passed* it). A reader without
rows in it learns that at its next look, so more readers than partitions hold nothing up. A micro-batch
without any rows needs a checkpoint, too: a snapshot in which some readers know its end and others do not is
one that no job can be started from, and must not be the newest when Spark goes on.

Why a request, and no mark in the rows (`runtime/operators/externally_induced.py`): with marks *every*
checkpoint and savepoint would have to wait for the end of a micro-batch, however long that takes. A barrier
may stand anywhere in a micro-batch here, because depots remember frames, not micro-batches; only the commit
in Spark needs one behind its end.

What makes it right is not that the request comes at the best moment, but that it is repeated. The one thing
that ends the wait is that all depots are covered, which readers tell them when a checkpoint is complete. So:

* A checkpoint that fails, or is refused because the job restarts: asked again. The failure counts as that of
  any other checkpoint (`tolerable_failures`).
* One that completed and does not cover the micro-batch, since a reader was restored meanwhile and reads its
  part again: asked again, when that has passed.
* A JobMaster that dies and takes the request with it: the one that comes back is asked again.
* A periodic checkpoint or a savepoint that covers the micro-batch first: nothing is asked for any more.

There are never many requests: each query has at most one under way, the next one comes when that is answered
and a look has passed, and a request that comes while another checkpoint runs waits in the coordinator's
queue. It is no more urgent than a periodic one: `min_pause` and `max_concurrent` hold it back, since whoever
sets them wants the job to have time between checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import ray

from penstock.actors.shared.answers import ANSWER
from penstock.actors.shared.names import NAMESPACE, master_name
from penstock.actors.shared.repeated_call import RepeatedCall
from penstock.bridge.transfer.transfer_service import Depots

logger = logging.getLogger(__name__)

#: Seconds of one look at a depot; whoever waits for it is heard of in between.
_LOOK: Final = 2.0


def wait_until_covered(depots: Depots, epoch: int, *, induce: bool) -> None:
    """Return when a completed checkpoint covers a closed epoch in all depots.

    Args:
        depots: Of the job.
        epoch: Number of the micro-batch.
        induce: Ask for the checkpoint; without it the next periodic one is awaited.

    Raises:
        HandOverFailedError: It will never be covered; the message says why.
        NoAnswerError: A depot is silent, or Ray can't reach it.
        ray.exceptions.RayActorError: The depots are gone, mostly because the job has ended.
    """
    covered = _are_covered(depots, epoch, 0.0)
    while not covered:
        request = _ask(depots, epoch) if induce else None
        covered = _are_covered(depots, epoch, _LOOK)
        while not covered and request is not None and not _is_answered(request, epoch):
            covered = _are_covered(depots, epoch, _LOOK)


def _are_covered(depots: Depots, epoch: int, patience: float) -> bool:
    return all(
        _answer(partial(depot.wait_until_covered.remote, epoch, patience), depots, patience)
        for depot in depots.handles
    )


def _answer(call: Callable[[], Any], depots: Depots, patience: float) -> bool:
    """What a depot answers that waits for so many seconds."""
    return RepeatedCall[bool](call, f"a depot of job {depots.job_id}").answer(patience + ANSWER)


def _ask(depots: Depots, epoch: int) -> Any | None:
    """Request a checkpoint when all readers have passed the epoch; `None` while no JobMaster is there."""
    for depot in depots.handles:
        while not _answer(partial(depot.wait_until_passed.remote, epoch, _LOOK), depots, _LOOK):
            logger.debug("micro-batch %d is not read to its end by job %s yet", epoch, depots.job_id)
    try:
        master: Any = ray.get_actor(master_name(depots.job_id), namespace=NAMESPACE)
    except ValueError:
        return None
    return master.checkpoint.remote()


def _is_answered(request: Any, epoch: int) -> bool:
    """Whether a request has come to an end, a good one or not."""
    if not ray.wait([request], timeout=0)[0]:
        return False
    try:
        refused: str | None = ray.get(request)
    except ray.exceptions.RayActorError as error:
        refused = f"its JobMaster died: {error}"
    if refused is not None:
        logger.warning("no checkpoint for micro-batch %d yet, asking again: %s", epoch, refused)
    return True
