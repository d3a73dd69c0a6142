"""`TransferService`: serves the jobs that read one DataFrame, in a thread of the program that has it.

The thread waits at the rendezvous until all readers of a job have registered, and then transfers the rows. A
DataFrame is transferred by one Spark job, a streaming DataFrame by a query that runs as long as the job.

The program owns the rendezvous, an actor, which ends with it. Receive buffers then learn that no program can
serve them any more.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import ray

from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall, while_unavailable
from penstock.actors.shared.registry import NAMESPACE
from penstock.bridge.receive_buffer.messages import DIED, ONE_JOB, OTHER_BUFFER, buffer_name, rendezvous_name
from penstock.bridge.session.session import is_alive
from penstock.bridge.transfer.job_buffers import JobBuffers, program_ends
from penstock.runtime.error_text import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TransferRequest:
    """All readers of a job have registered and want rows.

    Attributes:
        epochs: For each receive buffer, the micro-batch after which its reader continues; -1 for none.
    """

    job_id: str
    epochs: tuple[int, ...]


class Rendezvous:
    """Gathers the registrations of each job's receive buffers.

    Args:
        one_job: The first job that registers gets rows; every other job is refused.
    """

    def __init__(self, one_job: bool = False) -> None:
        self._one_job = one_job
        #: By job and receive buffer: its incarnation, and the micro-batch after which its reader continues.
        self._registered: dict[str, dict[int, tuple[str, int]]] = {}
        self._requests: list[TransferRequest] = []
        self._changed = asyncio.Event()

    async def register(self, job_id: str, index: int, of: int, instance: str, epoch: int = -1) -> str | None:
        """Register a receive buffer; its job's request is complete with the last one. Idempotent.

        Args:
            epoch: The micro-batch after which its reader continues; -1 for none.

        Returns:
            Why no rows will come, or `None`.
        """
        if self._one_job and self._registered and job_id not in self._registered:
            return ONE_JOB.format(*self._registered)
        known = self._registered.setdefault(job_id, {})
        if index in known:
            # The rows of another incarnation went to a process that is gone.
            return None if known[index][0] == instance else DIED
        known[index] = (instance, epoch)
        if len(known) == of:
            self._requests.append(TransferRequest(job_id, tuple(known[i][1] for i in range(of))))
            self._changed.set()
            self._changed = asyncio.Event()
        return None

    async def has_all(self, job_id: str, of: int) -> bool:
        return len(self._registered.get(job_id, {})) == of

    async def request(self, number: int, patience: float) -> TransferRequest | None:
        """The request after `number` others; `None` if there is none within `patience` seconds.

        Idempotent.
        """
        deadline = time.monotonic() + patience
        while number >= len(self._requests):
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return self._requests[number]


def start_rendezvous(transfer: str, *, one_job: bool) -> Any:
    actor: Any = ray.remote(Rendezvous)
    return actor.options(name=rendezvous_name(transfer), namespace=NAMESPACE, num_cpus=0).remote(one_job)


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
        """Transfer, until the end or until a failure that it has reported to the receive buffers."""
        ...


class TransferService:
    """Serves the requests of jobs, one after the other, as long as the session lives.

    It costs the program a thread, and the cluster a process of about 80 MB, the rendezvous. It stays when its
    jobs have ended, because another one may come. When idle it makes a call every ten seconds and checks the
    session every second.

    Args:
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
            ray.kill(self._rendezvous)  # so that the receive buffers see that no program serves them

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
