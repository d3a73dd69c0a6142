"""The end of a micro-batch induces a checkpoint of the job, and Spark's commit waits for it.

Spark may commit a micro-batch only when a completed checkpoint covers it. Waiting for the periodic checkpoint
would make each micro-batch take a whole period, so the source is externally induced. The program with the
query asks the JobMaster for a checkpoint as soon as one that starts now covers the micro-batch. By then it is
closed in all receive buffers, and every reader has emitted its part and knows its end. A reader without rows
learns the end at its next poll. A micro-batch without rows needs a checkpoint, too. A snapshot in which only
some readers know its end can't start a job, so it must not be the newest one when Spark continues.

The program sends a request, and puts no mark into the rows (`runtime/operators/coordinators.py`). With marks,
*every* checkpoint and savepoint would wait for the end of a micro-batch. A barrier may stand anywhere in a
micro-batch, because receive buffers remember frames. Only Spark's commit needs a barrier after its end.

The request is repeated until all receive buffers are covered, which readers report to them when a checkpoint
is complete. So:

* A checkpoint fails, or is refused because the job restarts: it is requested again. The failure counts like
  that of any other checkpoint (`tolerable_failures`).
* A completed checkpoint may not cover the micro-batch, because a restored reader reads its part again.
  Another one is requested when that reader has emitted its part.
* A JobMaster dies and takes the request with it: its successor is asked.
* A periodic checkpoint or a savepoint covers the micro-batch first: nothing more is requested.

Each query has at most one request in progress, and sends the next one after an answer and a pause. A request
that comes while another checkpoint runs waits in the coordinator's queue. It is as urgent as a periodic one:
`min_pause` and `max_concurrent` hold it back, because users set them to give the job time between
checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import ray

from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall
from penstock.actors.shared.registry import find_master
from penstock.actors.shared.snapshot_answers import CheckpointReply, SnapshotRefused
from penstock.bridge.transfer.job_buffers import JobBuffers

logger = logging.getLogger(__name__)

#: Seconds that one call waits in a receive buffer.
_LOOK: Final = 2.0


def wait_until_covered(buffers: JobBuffers, epoch: int, *, induce: bool) -> None:
    """Return when a completed checkpoint covers a closed epoch in all receive buffers.

    Args:
        induce: Request the checkpoint; otherwise wait for the next periodic one.

    Raises:
        TransferError: The epoch will never be covered; the message says why.
        NoAnswerError: A receive buffer is silent, or Ray can't reach it.
        ray.exceptions.RayActorError: The receive buffers have ended, mostly because the job has ended.
    """
    covered = _are_covered(buffers, epoch, 0.0)
    while not covered:
        request = _ask(buffers, epoch) if induce else None
        covered = _are_covered(buffers, epoch, _LOOK)
        while not covered and request is not None and not _is_answered(request, epoch):
            covered = _are_covered(buffers, epoch, _LOOK)


def _are_covered(buffers: JobBuffers, epoch: int, patience: float) -> bool:
    return all(
        _answer(partial(buffer.wait_until_covered.remote, epoch, patience), buffers, patience)
        for buffer in buffers.handles
    )


def _answer(call: Callable[[], Any], buffers: JobBuffers, patience: float) -> bool:
    """The answer of a receive buffer that may wait for `patience` seconds."""
    return RepeatedCall[bool](call, f"a receive buffer of job {buffers.job_id}").answer(patience + ANSWER)


def _ask(buffers: JobBuffers, epoch: int) -> Any | None:
    """Request a checkpoint when all readers have emitted the epoch; `None` while there is no JobMaster."""
    for buffer in buffers.handles:
        while not _answer(partial(buffer.wait_until_emitted.remote, epoch, _LOOK), buffers, _LOOK):
            logger.debug("micro-batch %d is not read to its end by job %s yet", epoch, buffers.job_id)
    try:
        master: Any = find_master(buffers.job_id)
    except ValueError:
        return None
    return master.checkpoint.remote(buffers.job_id)


def _is_answered(request: Any, epoch: int) -> bool:
    """Whether a request has ended, successfully or not."""
    if not ray.wait([request], timeout=0)[0]:
        return False
    try:
        reply: CheckpointReply = ray.get(request)
    except ray.exceptions.RayActorError as error:
        reply = SnapshotRefused(f"its JobMaster died: {error}")
    except ValueError as error:
        reply = SnapshotRefused(f"the job has ended: {error}")
    if isinstance(reply, SnapshotRefused):
        logger.warning("no checkpoint for micro-batch %d yet, asking again: %s", epoch, reply.why)
    return True
