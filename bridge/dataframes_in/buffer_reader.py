"""Reading the share of a reader: one depot, from a position on.

The depot is asked again as long as Ray can't reach it (`repeated_call.py`): it holds every frame until a
checkpoint covers it, so what was asked before can be asked again. Only its death loses rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.shared.answers import NoAnswerError
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.receive_buffer.failure_texts import DIED, UNREACHABLE
from penstock.bridge.receive_buffer.messages import Chunk, ReadFrame
from penstock.runtime.errors import LostInputError

#: Bytes that one read of a depot asks for.
_CHUNK_BYTES: Final = 8 * 1024 * 1024
#: Seconds that a read waits in the depot for frames.
_READ_PATIENCE: Final = 2.0
#: Seconds for the depots to start.
_START: Final = 120.0
#: Seconds for Ray to reach a depot again.
_AWAY: Final = 60.0
_WHO: Final = "the process that holds the rows between Spark and the job"


@dataclass(frozen=True, slots=True)
class Share:
    """The partitions of one depot, and how far they were read.

    Attributes:
        index: Which depot.
        of: How many depots there are.
        depot: Stamp of the depot that the position is in; empty when nothing was read.
        frame: How many frames were read to their end.
        row: Rows that were read of the next one.
        rows: Rows read of each partition so far.
        epoch: The newest micro-batch that was read to its end; -1 for none.
        is_whole: Nothing was read behind the end of that.
    """

    index: int
    of: int
    depot: str = ""
    frame: int = 0
    row: int = 0
    rows: Mapping[int, int] = field(default_factory=dict)
    epoch: int = -1
    is_whole: bool = True


class ShareReader:
    """Reads one depot, asking for the next frames while those at hand are worked off.

    Args:
        depot: The handle of the depot.
        share: How far it was read.
        staged: Rows come in micro-batches.

    Attributes:
        position: How far it is read now.
    """

    def __init__(self, depot: Any, share: Share, *, staged: bool) -> None:
        self.position = share
        self._rows = dict(share.rows)
        self._depot = depot
        epoch = share.epoch if share.is_whole else None
        self._hello = RepeatedCall[str](lambda: depot.hello.remote(share.depot, epoch), _WHO)
        self._asked = share.frame
        self._frames: deque[ReadFrame] = deque()
        self._batches: deque[pa.RecordBatch] = deque()
        self._partition = -1
        self._skip = share.row
        self._last = False
        self._staged = staged
        #: The epoch that the depot was told last.
        self._told = share.epoch
        self._telling: RepeatedCall[None] | None = None
        #: The newest epoch whose end the depot has shown.
        self._known = share.epoch
        #: The epoch that ends behind the frame that is being read.
        self._ends: int | None = None

    @property
    def is_finished(self) -> bool:
        """Everything has been read."""
        return self._last and not self._frames and not self._batches

    def wait_until_there(self) -> None:
        """Wait until the depot has started.

        Raises:
            LostInputError: It has not, or it has died.
        """
        try:
            stamp = self._hello.answer(_START)
        except NoAnswerError as error:
            msg = (
                f"the process for the rows between Spark and the job did not start within {_START:g} s; look "
                "at `ray status` for what the cluster lacks"
            )
            raise LostInputError(msg) from error
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if self.position.depot != stamp:
            # It begins, or goes on behind a micro-batch: the first frame here is its next one.
            self.position = replace(self.position, depot=stamp, frame=0, row=0)
            self._asked = self._skip = 0
        # What it was restored with is covered by a completed checkpoint.
        self.confirm(self.position)
        self._ask()

    def snapshot(self) -> Share:
        """The position, with the rows of each partition: too many to be copied at every batch."""
        return replace(self.position, rows=dict(self._rows))

    def confirm(self, position: Share) -> None:
        """A completed checkpoint covers all that is before this position."""
        self._depot.confirm.remote(position.frame, position.epoch)

    def tell_passed(self) -> None:
        """Nothing is at hand: the end of a micro-batch may be reached, and a checkpoint worth while.

        Called at every poll without rows, and looks then whether the last word has arrived: without it nobody
        induces the checkpoint that Spark waits for.
        """
        if self._staged and self.position.is_whole and self._told != self.position.epoch:
            self._told = epoch = self.position.epoch
            self._telling = RepeatedCall(lambda: self._depot.passed.remote(epoch), _WHO)
        elif self._telling is not None and self._telling.is_done():
            self._telling = None

    def next_batch(self, max_rows: int) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; `None` when there are none right now.

        Raises:
            LostInputError: The hand-over has failed; the message says why and what to do.
        """
        if not self._batches and not self._open_frame():
            return None
        batch = self._batches.popleft()
        taken = batch.slice(0, max_rows)
        if taken.num_rows < batch.num_rows:
            self._batches.appendleft(batch.slice(max_rows))
        self._advance(taken.num_rows)
        return taken

    def _advance(self, rows: int) -> None:
        self._rows[self._partition] = self._rows.get(self._partition, 0) + rows
        old = self.position
        frame, row, epoch, is_whole = old.frame, old.row + rows, old.epoch, False
        if not self._batches:
            frame, row = frame + 1, 0
            if self._ends is not None:
                epoch, is_whole = self._ends, True
        self.position = replace(old, frame=frame, row=row, epoch=epoch, is_whole=is_whole)

    def _open_frame(self) -> bool:
        """Decode the next frame; false when none is at hand."""
        if not self._frames:
            self._take_answer()
        if not self._frames:
            return False
        frame = self._frames.popleft()
        self._partition, self._ends = frame.partition, frame.ends
        skip, self._skip = self._skip, 0
        with pa.ipc.open_stream(frame.data) as stream:
            for batch in stream:
                dropped = min(skip, batch.num_rows)
                skip -= dropped
                if dropped < batch.num_rows:
                    self._batches.append(batch.slice(dropped))
        return True

    def _ask(self) -> None:
        # A future costs nothing to look at; `ray.wait` in every poll took a fifth of a waiting reader's time.
        first, known = self._asked, self._known
        self._call = RepeatedCall[Chunk | str](
            lambda: self._depot.read.remote(first, known, _CHUNK_BYTES, _READ_PATIENCE),
            _WHO,
            while_unavailable(_AWAY),
        )

    def _take_answer(self) -> None:
        if self._last or not self._call.is_done():
            return
        try:
            answer = self._call.result()
        except NoAnswerError as error:
            raise LostInputError(UNREACHABLE) from error
        except ray.exceptions.RayActorError as error:
            raise LostInputError(DIED) from error
        if isinstance(answer, str):
            msg = f"rows from Spark: {answer}"
            raise LostInputError(msg)
        self._frames.extend(answer.frames)
        self._asked += len(answer.frames)
        self._last = answer.complete
        self._known = answer.epoch
        if not answer.frames and answer.epoch > self.position.epoch:
            # Micro-batches have ended without a row for this reader.
            self.position = replace(self.position, epoch=answer.epoch, is_whole=True)
        if not self._last:
            self._ask()
