"""`MessageFetcher`: a thread with an event loop that receives the messages of one reader.

The task thread never waits for a broker. Each split has a *receiver*, the part that differs between brokers.
The receiver keeps a few batches ready in its *inbox*, and receives nothing more until the task thread takes
them. So memory is bounded, and a slow job slows the reads.

A receiver whose broker can't be reached is started again, and continues after the last message that it put
into the inbox. After `give_up_after` without an answer the attempt fails.

**Lag.** The fetcher asks the receivers for the ends of their splits every two seconds, even while inboxes are
full. So the reported lag of a slow job grows as its splits grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from penstock.runtime.errors import ConnectorError
from penstock.runtime.operators.source import Polled
from penstock.runtime.redaction import redacted

logger = logging.getLogger(__name__)

#: Seconds without an answer until the attempt fails, unless the source says otherwise.
GIVE_UP_AFTER: Final = 60.0
#: Maximum number of a split's batches that wait for the task thread.
_MOST_READY: Final = 4
#: Seconds for the last acknowledgements and for each disconnect, and seconds for the thread to end. As a
#: daemon it never outlives the process.
_GOODBYE: Final = 3.0
_END: Final = 5.0
#: Seconds until a receiver that did not end is cancelled again.
_AGAIN: Final = 0.05
#: Seconds between two requests for the end of a split, and until the first one.
_LOOK_FOR_END: Final = 2.0
_FIRST_LOOK: Final = 0.1
#: Longest pause between two tries, in seconds.
_LONGEST_PAUSE: Final = 2.0
#: Message of the error for a broker that can't be reached.
_FAILURE: Final = (
    "{where} gave no answer for {seconds:g} s: {error}. Check that it runs and can be reached from the "
    "workers"
)


@dataclass(slots=True)
class ReceivedBatch:
    """Records of one split in their order.

    Attributes:
        position: Position of the split after these records.
        tokens: Tokens that acknowledge the messages of these records, including those of bad records.
        is_last: Whether the split has been read to its end.
    """

    split: Hashable
    polled: Polled[Any]
    position: Any
    tokens: Sequence[Any] = ()
    is_last: bool = False


class Receiver(Protocol):
    """Receives the messages of one split; all calls come from the fetcher's event loop.

    Attributes:
        where: The broker and the split, for errors, without secrets.
        transient: Errors after which `receive` is called again.
    """

    where: str
    transient: tuple[type[BaseException], ...]

    async def receive(self, inbox: Inbox) -> None:
        """Put messages into the inbox until the split ends, starting after the last one that was put."""
        ...

    async def acknowledge(self, tokens: Sequence[Any]) -> None:
        """Acknowledge messages that a completed checkpoint covers."""
        ...

    async def close(self) -> None:
        """Release everything; called once, when `receive` has ended."""
        ...


@runtime_checkable
class FindsEnd(Protocol):
    """Optional for a receiver: finds the end of its split, from which the split derives its lag."""

    async def find_end(self) -> Any:
        """Return the end, in the form that the split's `lag` takes; `None` if it is not known.

        Called while `receive` runs, and while there is no connection.
        """
        ...


class Inbox:
    """Batches of one split on their way to the task thread.

    Attributes:
        end: The last known end of the split; `None` if it is not known.
    """

    def __init__(self, split: Hashable, fetcher: MessageFetcher) -> None:
        self._split = split
        self._fetcher = fetcher
        self._room = asyncio.Semaphore(_MOST_READY)
        self.answered_at = time.monotonic()
        self.end: Any = None

    @property
    def max_rows(self) -> int:
        """Approximate number of records that the next batch may have."""
        return self._fetcher.max_rows

    def answered(self) -> None:
        """Note that the broker answers."""
        self.answered_at = time.monotonic()

    async def put(
        self, polled: Polled[Any], position: Any, tokens: Sequence[Any] = (), *, is_last: bool = False
    ) -> None:
        """Wait for room, then pass a batch to the task thread."""
        await self._room.acquire()
        self.answered()
        self._fetcher.ready(ReceivedBatch(self._split, polled, position, tokens, is_last))

    def taken(self) -> None:
        self._room.release()


class MessageFetcher:
    """Runs the receivers of one reader.

    Args:
        receivers: One for each split of the reader, by the split's name.
        give_up_after: Seconds without an answer of a broker until the attempt fails.
        on_end: Called in the fetcher's thread when all receivers are closed.
        failure: Template of the error for a broker without an answer, with `where`, `seconds` and `error`.
    """

    def __init__(
        self,
        receivers: Mapping[Hashable, Receiver],
        give_up_after: float,
        on_end: Callable[[], None] = lambda: None,
        *,
        failure: str = _FAILURE,
    ) -> None:
        self._receivers = receivers
        self._give_up_after = give_up_after
        self._on_end = on_end
        self._failure = failure
        self._lock = threading.Lock()
        self._ready: deque[ReceivedBatch] = deque()
        self._paused: Set[Hashable] = frozenset()
        self._error: BaseException | None = None
        self._loop = asyncio.new_event_loop()
        self._is_closing = asyncio.Event()
        self._inboxes = {name: Inbox(name, self) for name in receivers}
        self._acknowledgements: asyncio.Queue[tuple[Hashable, Sequence[Any]]] = asyncio.Queue()
        self.max_rows = 1
        self._thread = threading.Thread(target=self._run, name="message-fetcher", daemon=True)
        self._thread.start()

    # -- the task thread ----------------------------------------------------------------------------------

    def take(self) -> ReceivedBatch | None:
        """Return the next batch of a split that is not paused, if one is ready.

        Raises:
            ConnectorError: A broker gives no answer, or refuses a request. Raised when only batches of paused
                splits are left, because these splits may wait for the one that has failed.
        """
        with self._lock:
            for index, fetched in enumerate(self._ready):
                if fetched.split not in self._paused:
                    del self._ready[index]
                    self._call(self._inboxes[fetched.split].taken)
                    return fetched
            if self._error is not None:
                raise self._error
            return None

    def pause(self, paused: Set[Hashable]) -> None:
        """Give out no batch of these splits, and resume all others."""
        self._paused = paused

    def acknowledge(self, split: Hashable, tokens: Sequence[Any]) -> None:
        """Acknowledge messages, in the order of the calls."""
        self._call(lambda: self._acknowledge(split, tokens))

    def end(self, split: Hashable) -> Any:
        """Return the last known end of a split; `None` if it is not known. For any thread."""
        return self._inboxes[split].end

    def close(self) -> None:
        self._call(self._is_closing.set)
        self._thread.join(_END)
        if self._thread.is_alive():
            logger.warning("the clients of %s still run", [each.where for each in self._receivers.values()])

    def _call(self, callback: Callable[[], None]) -> None:
        """Run a callback in the fetcher's thread, unless it has ended."""
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    # -- the fetcher's thread -----------------------------------------------------------------------------

    def ready(self, fetched: ReceivedBatch) -> None:
        if self._error is not None:
            return  # otherwise a busy split would delay the failure of another one for ever
        with self._lock:
            self._ready.append(fetched)

    def _run(self) -> None:
        try:  # a runner also cancels tasks that clients left behind
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._receive_all())
        except BaseException as error:  # raised again in the task thread, by `take`
            self._error = error
        finally:
            self._on_end()

    async def _receive_all(self) -> None:
        receiving = [self._loop.create_task(self._receive(name)) for name in self._receivers]
        acknowledging = self._loop.create_task(self._acknowledge_all())
        looking = [
            self._loop.create_task(self._look_for_end(receiver, self._inboxes[name]))
            for name, receiver in self._receivers.items()
            if isinstance(receiver, FindsEnd)
        ]
        try:
            await self._is_closing.wait()
            # Messages that a completed checkpoint covers are acknowledged before the end.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._acknowledgements.join(), _GOODBYE)
        finally:
            running = {*receiving, *looking, acknowledging}
            while running:  # redis-py loses a cancellation that comes while it connects
                for task in running:
                    task.cancel()
                _, running = await asyncio.wait(running, timeout=_AGAIN)
            for receiver in self._receivers.values():
                await self._goodbye(receiver)

    async def _receive(self, name: Hashable) -> None:
        receiver, inbox = self._receivers[name], self._inboxes[name]

        def is_late(state: RetryCallState) -> bool:
            return time.monotonic() - inbox.answered_at > self._give_up_after

        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(receiver.transient),
                wait=wait_random_exponential(multiplier=0.05, max=_LONGEST_PAUSE),
                stop=is_late,
                before_sleep=lambda state: self._log(receiver, state),
                reraise=True,
            ):
                with attempt:
                    await receiver.receive(inbox)
        except asyncio.CancelledError:
            raise
        except receiver.transient as error:
            said, seconds = redacted(_said(error)), self._give_up_after
            msg = self._failure.format(where=receiver.where, seconds=seconds, error=said)
            self._error = ConnectorError(msg)
        except BaseException as error:  # raised again in the task thread, by `take`
            self._error = error

    async def _look_for_end(self, receiver: Any, inbox: Inbox) -> None:
        pause = _FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            pause = _LOOK_FOR_END
            try:
                inbox.end = await receiver.find_end()
            except receiver.transient as error:
                inbox.end = None
                logger.info("%s: the lag is not known: %s", receiver.where, redacted(_said(error)))
            except Exception as error:  # raised again in the task thread, by `take`
                self._error = error
                return

    def _log(self, receiver: Receiver, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        logger.warning("%s: %s; trying again", receiver.where, redacted(_said(error)))

    def _acknowledge(self, split: Hashable, tokens: Sequence[Any]) -> None:
        self._acknowledgements.put_nowait((split, tokens))

    async def _acknowledge_all(self) -> None:
        while True:
            split, tokens = await self._acknowledgements.get()
            receiver = self._receivers[split]
            try:
                await receiver.acknowledge(tokens)
            except receiver.transient as error:
                logger.warning(
                    "%s: messages are not acknowledged yet: %s", receiver.where, redacted(_said(error))
                )
            except Exception as error:  # raised again in the task thread, by `take`
                self._error = error
            finally:
                self._acknowledgements.task_done()

    async def _goodbye(self, receiver: Receiver) -> None:
        expected: tuple[type[BaseException], ...] = (TimeoutError, *receiver.transient)
        try:
            await asyncio.wait_for(receiver.close(), _GOODBYE)
        except expected as error:
            logger.warning("%s: the connection was not closed: %s", receiver.where, redacted(_said(error)))


def refused(where: str, what: str, error: BaseException) -> ConnectorError:
    """Make an error that fails the attempt at once, without the secrets of the client's error."""
    return ConnectorError(f"{where} can't {what}: {redacted(_said(error))}")


def _said(error: BaseException | None) -> str:
    return str(error) or type(error).__name__
