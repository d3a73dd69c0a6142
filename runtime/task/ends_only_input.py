"""The input of a subtask that had finished in the restored checkpoint."""

from __future__ import annotations

from penstock.runtime.errors import OperatorLocation, StreamCorruptError
from penstock.runtime.task.network_input import NetworkInput
from penstock.runtime.task.task_input import (
    CONSUMED,
    NOTHING,
    BatchArrived,
    DataEnded,
    InputProgress,
    Nothing,
    TaskInput,
)


class EndsOnlyInput(TaskInput):
    """Takes the ends that the senders, which have finished too, send again; none of it is work.

    Args:
        location: Where the subtask is, for errors.
        network: Its channels; `None` for a source.
    """

    def __init__(self, location: OperatorLocation, network: NetworkInput | None) -> None:
        self._location = location
        self._network = network

    def poll(self, max_rows: int) -> InputProgress:
        """Take the next event.

        Raises:
            StreamCorruptError: Records came.
        """
        progress = NOTHING if self._network is None else self._network.poll(max_rows)
        if isinstance(progress, BatchArrived) or (
            isinstance(progress, DataEnded) and progress.batch is not None
        ):
            msg = f"{self._location} had finished in the restored checkpoint and was sent records"
            raise StreamCorruptError(msg)
        return progress if isinstance(progress, Nothing) else CONSUMED

    @property
    def is_exhausted(self) -> bool:
        """Whether every channel has ended."""
        return self._network is None or self._network.is_exhausted
