"""What the end of a `run` call means.

The JobMaster keeps one `run` call open on every subtask. It ends when the attempt ends, and within
milliseconds when the process dies, so no heartbeat is needed to see a death. A process that lives and is
silent is seen by `Heartbeats`, which kills it if it hangs.
"""

from __future__ import annotations

from penstock.runtime.execution.messages import SubtaskFailed, SubtaskFinished, SubtaskOutcome, SubtaskStopped
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Raised
from penstock.runtime.job.failure import FailureCause, FailureKind
from penstock.runtime.snapshot.subtask_id import SubtaskId


def cause_of_end(
    subtask: SubtaskId, place: Place, outcome: SubtaskOutcome | CallFailure, *, was_stopped: bool
) -> FailureCause | None:
    """Why an attempt has failed whose `run` call has ended; `None` when it has not.

    Args:
        place: Where it ran.
        outcome: How the call ended.
        was_stopped: Whether the JobMaster has told the subtask to stop.

    Example:
        >>> here = Place(7, "4f5a9c0d1e")
        >>> cause_of_end(SubtaskId("count", 0), here, Died("killed"), was_stopped=False).message
        'its process died (pid 7 on node 4f5a9c0d): killed'
        >>> cause_of_end(SubtaskId("count", 0), here, SubtaskStopped(), was_stopped=True) is None
        True
    """
    where = f"pid {place.pid} on node {place.node_id[:8]}"
    match outcome:
        case Died(detail):
            return FailureCause(f"its process died ({where}): {detail}", subtask, kind=FailureKind.PROCESS)
        case Away():
            text = f"its process can't be reached any more ({where})"
            return FailureCause(text, subtask, kind=FailureKind.PROCESS)
        case Raised(cause):
            return cause
        case SubtaskFailed():
            return outcome.cause(subtask)
        case SubtaskStopped() if not was_stopped:
            text = "it was stopped although the job runs: another attempt has its process"
            return FailureCause(text, subtask)
        case SubtaskStopped() | SubtaskFinished():
            return None
