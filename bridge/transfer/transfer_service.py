"""`TransferService`: serves the jobs that read one DataFrame, in a thread of the program that has it.

The thread waits at the rendezvous until all readers of a job have registered, and then transfers the rows. A
DataFrame is transferred by one Spark job, a streaming DataFrame by a query that runs as long as the job.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import ray

from penstock.actors.shared.answers import ANSWER
from penstock.actors.shared.names import NAMESPACE
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable
from penstock.bridge.receive_buffer.actor_names import buffer_name
from penstock.bridge.receive_buffer.errors import OTHER_BUFFER
from penstock.bridge.session.session import is_alive
from penstock.bridge.transfer.job_buffers import JobBuffers
from penstock.bridge.transfer.program_end import program_ends
from penstock.bridge.transfer.rendezvous import TransferRequest, start_rendezvous
from penstock.runtime.error_text import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Seconds between two checks that the program and its session are alive. Nothing waits inside of Ray here: a
#: thread that is in a call when the program leaves its cluster would take the program down.
_POLL: Final = 1.0
#: Seconds that a call waits at the rendezvous for a request.
_REQUEST: Final = 10.0
#: Seconds in which the end of the program may show after an error that it has caused.
_GRACE: Final = 2.0


class Serve(Protocol):
    """Transfers rows to the receive buffers of one job; what it raises ends that job, and no other."""

    def __call__(self, buffers: JobBuffers) -> None:
        """Transfer, until the end or until a failure that it has told the receive buffers."""
        ...


class TransferService:
    """Serves the requests of jobs, one after the other, as long as the session lives.

    Until then it costs the program a thread, and the cluster a process of about 80 MB, the rendezvous. It
    also stays when its jobs have ended, because another one may come. When idle it makes a call every ten
    seconds and checks the session every second.

    Args:
        session: The session of the DataFrame.
        schema: The Arrow schema of the rows.
        serve: Transfers the rows to one job.
        one_job: Serve only the first job that asks.
    """

    def __init__(
        self, session: SparkSession, schema: pa.Schema, serve: Serve, *, one_job: bool = False
    ) -> None:
        self.id = secrets.token_hex(6)
        self._session = session
        self._schema: bytes = schema.serialize().to_pybytes()
        self._serve = serve
        self._rendezvous = start_rendezvous(self.id, one_job=one_job)
        self._address: str = ray.get_runtime_context().gcs_address
        self._thread = threading.Thread(target=self._run, name=f"transfer-{self.id}", daemon=True)

    def start(self) -> None:
        """Begin to serve requests."""
        self._thread.start()

    def _run(self) -> None:
        taken = 0
        call: RepeatedCall[TransferRequest | None] | None = None
        try:
            while not program_ends.is_set() and ray.is_initialized():
                if not is_alive(self._session):
                    ray.kill(self._rendezvous)
                    return
                call = self._next_request(taken) if call is None else call
                if not call.wait(_POLL):
                    continue
                request, call = call.result(), None
                if request is not None:
                    taken += 1
                    self._take(request)
        except Exception as error:
            # Mostly Ray or Spark is gone because the program ends, which may show a moment later.
            if program_ends.wait(_GRACE) or not ray.is_initialized():
                logger.debug("transfer %s ends: %s", self.id, error)
                return
            logger.exception("transfer %s serves no more requests", self.id)
            ray.kill(self._rendezvous)  # so that the receive buffers see that nobody serves them

    def _next_request(self, taken: int) -> RepeatedCall[TransferRequest | None]:
        call = partial(self._rendezvous.request.remote, taken, _REQUEST)
        return RepeatedCall[TransferRequest | None](
            call, "the rendezvous of a transfer", while_unavailable(ANSWER)
        )

    def _take(self, request: TransferRequest) -> None:
        try:
            buffers = self._buffers(request)
        except ValueError:
            logger.info("job %s has ended before its rows were asked for", request.job_id)
            return
        if len(set(request.epochs)) > 1:
            buffers.fail(OTHER_BUFFER)
            return
        try:
            self._serve(buffers)
        except Exception as error:
            logger.exception("the transfer to job %s has failed", request.job_id)
            buffers.fail(f"the transfer has failed: {error_text(error)}")

    def _buffers(self, request: TransferRequest) -> JobBuffers:
        names = tuple(buffer_name(request.job_id, self.id, i) for i in range(len(request.epochs)))
        handles: Sequence[Any] = [ray.get_actor(name, namespace=NAMESPACE) for name in names]
        return JobBuffers(request.job_id, names, tuple(handles), self._address, self._schema)
