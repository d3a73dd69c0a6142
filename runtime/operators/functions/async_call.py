"""One call of a user's coroutine function: tries, backoff, timeout, and its one outcome.

`answer_of` runs on the event loop of the operator, so it needs no lock. It uses the loop's clock, which is
simulated in a simulation. A call has exactly one outcome. The timeout covers the whole call, including all
tries and the pauses between them, as in Flink. When it expires, the running try or pause is cancelled before
the outcome is decided. So no later try can answer a call that has timed out.

`asyncio.timeout` is used instead of `asyncio.wait_for`. In Python 3.11 `wait_for` runs the call in another
task, and cancelling this task could lose an answer that had just arrived.

The retries use tenacity. The jitter of a pause is computed from the call's idempotency key, so simulations
are reproducible.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import xxhash

from penstock.runtime.config.checks import Settings, whole_number
from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.time.durations import Duration, seconds_in


@dataclass(frozen=True, slots=True)
class AsyncCall:
    """The running call of a function of `map_async`.

    Attributes:
        idempotency_key: Text that identifies the call's record, or the first record of its batch. It is the
            same in every try, and after a restore. Send it to a service that must not act twice.
        attempt: Number of the try, from 1; after a restart of the job it begins at 1 again.
    """

    idempotency_key: str
    attempt: int


_CURRENT: Final[ContextVar[AsyncCall]] = ContextVar("penstock_async_call")


def async_call() -> AsyncCall:
    """Return the running call, within a function of `map_async`.

    Raises:
        PenstockError: No call is running here.

    Example:
        >>> from penstock import async_call
        >>> from penstock.testing import OperatorHarness
        >>> async def tried(order):
        ...     return async_call().attempt
        >>> with OperatorHarness.of(lambda orders: orders.map_async(tried, id="tries")) as harness:
        ...     harness.push(["a"])
        [1]
    """
    call = _CURRENT.get(None)
    if call is None:
        msg = "async_call() is for functions of map_async while they run; no call is running here"
        raise PenstockError(msg)
    return call


@dataclass(frozen=True, slots=True)
class Retry(Settings):
    """Tries of a call that fails, and the pauses between them.

    Attributes:
        attempts: Number of tries, including the first one.
        delay: Seconds or `timedelta` before the second try. Each later pause is twice as long as the pause
            before it. A pause is shortened by up to half, differently for each call, so that calls are not
            retried at the same time.
        max_delay: Longest pause, in seconds or as a `timedelta`.
        on: Exceptions after which the call is tried again; after any other exception it fails at once.

    Raises:
        ConfigurationError: A value is invalid.

    Example:
        >>> Retry(attempts=5, delay=0.2, on=(ConnectionError,)).attempts
        5
    """

    attempts: int = 3
    delay: Duration = 0.1
    max_delay: Duration = 10.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        whole_number("Retry.attempts", self.attempts, at_least=1)
        object.__setattr__(self, "delay", seconds_in("Retry.delay", self.delay))
        object.__setattr__(self, "max_delay", seconds_in("Retry.max_delay", self.max_delay))
        kinds = self.on if isinstance(self.on, tuple) else (self.on,)
        if not kinds or not all(inspect.isclass(kind) and issubclass(kind, Exception) for kind in kinds):
            msg = f"Retry.on is a tuple of exception classes, not {self.on!r:.80}"
            raise ConfigurationError(msg)
        object.__setattr__(self, "on", kinds)

    def pause_after(self, attempt: int, key: str) -> float:
        """Return the seconds between a try and the next one, for the call with this key."""
        longest = seconds_in("Retry.max_delay", self.max_delay)
        full = min(longest, seconds_in("Retry.delay", self.delay) * 2.0 ** min(attempt - 1, 64))
        share = xxhash.xxh3_64_intdigest(f"{key} {attempt}".encode()) / float(1 << 64)
        return full * (1 - share / 2)


#: Takes the function's argument, and returns the result to use instead of an answer.
OnTimeout: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings of all calls of an operator.

    Attributes:
        timeout: Maximum seconds of a whole call; `None` for no limit.
    """

    function: Callable[[Any], Any]
    timeout: float | None = None
    retry: Retry | None = None
    on_timeout: OnTimeout | None = None


class CallCounts:
    """Retries and timeouts of an operator; changed on the event loop, read by any thread."""

    __slots__ = ("retries", "timeouts")

    def __init__(self) -> None:
        self.retries = self.timeouts = 0


class CallTimeoutError(PenstockError):
    """A call had no answer in time."""


async def answer_of(settings: CallSettings, given: Callable[[], Any], key: str, counts: CallCounts) -> Any:
    """Call the function until it answers, fails for good, or times out.

    Args:
        given: Makes a new argument for each try, because a try may change its argument.

    Raises:
        CallTimeoutError: There was no answer in time, and `on_timeout` is `None`.
        BaseException: The error of the last try.
    """
    tried = 0

    async def attempt() -> Any:
        nonlocal tried
        tried += 1
        _CURRENT.set(AsyncCall(key, tried))
        made = settings.function(given())
        if not inspect.isawaitable(made):
            msg = (
                f"it returned {short_repr(made)} of type {type(made).__name__}, which can't be awaited: "
                "declare the function `async def`, or use map for a function that returns its result"
            )
            raise PenstockError(msg)
        return await made

    retry, scope = settings.retry, asyncio.timeout(settings.timeout)
    answer = attempt if retry is None else partial(_with_retries, retry, attempt, key, counts, scope.expired)
    if settings.timeout is None:
        return await answer()
    try:
        async with scope:
            return await answer()
    except Exception as error:  # a client may turn the cancellation into an error of its own
        if not scope.expired():
            raise
        cause = error
    counts.timeouts += 1
    if settings.on_timeout is None:
        tries = "" if tried == 1 else f" in {tried} tries"
        msg = (
            f"there was no answer within {settings.timeout:g} s{tries}. Give a longer timeout, or "
            "on_timeout, a function that returns a result instead"
        )
        raise CallTimeoutError(msg) from cause
    instead = settings.on_timeout(given())
    return await instead if inspect.isawaitable(instead) else instead


async def _with_retries(
    retry: Retry,
    attempt: Callable[[], Any],
    key: str,
    counts: CallCounts,
    has_expired: Callable[[], bool],
) -> Any:
    from tenacity import (  # loaded only for calls that are tried again
        AsyncRetrying,
        RetryCallState,
        retry_if_exception_type,
    )

    def count(state: RetryCallState) -> None:
        counts.retries += 1

    tries = AsyncRetrying(
        stop=lambda state: has_expired() or state.attempt_number >= retry.attempts,
        wait=lambda state: retry.pause_after(state.attempt_number, key),
        retry=retry_if_exception_type(retry.on),
        before_sleep=count,
        sleep=asyncio.sleep,
        reraise=True,
    )
    return await tries(attempt)
