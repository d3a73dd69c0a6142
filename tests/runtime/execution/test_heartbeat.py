"""Processor time distinguishes a hung process from a busy one; a frozen observer blames none."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse

LIMITS = HeartbeatLimits.of(heartbeat_timeout=8.0, overdue_after=60.0)


class Followed:
    """A heartbeat that is checked every half second; the processor time is read on request."""

    def __init__(self, used: Callable[[float], float | None]) -> None:
        self.now = 0.0
        self.used = used
        self.beat = Heartbeat(LIMITS, now=0.0)
        self.pulses: dict[float, Pulse] = {}

    def until(self, end: float) -> Pulse:
        while self.now < end:
            self.now += LIMITS.interval
            self.pulses[self.now] = self.beat.look(self.now, LIMITS.interval)
            if self.beat.wants_reading:
                self.beat.ask()
                self.beat.read(self.used(self.now))
        return self.pulses[end]

    def first(self, pulse: Pulse) -> float:
        return next(now for now, seen in self.pulses.items() if seen is pulse)


def test_a_process_that_stands_still_is_named_after_four_seconds_and_hangs_after_eight() -> None:
    followed = Followed(lambda now: 1.5)
    assert followed.until(8.0) is Pulse.HUNG
    assert followed.first(Pulse.SILENT) == 4.0
    assert followed.first(Pulse.HUNG) == 8.0
    assert str(followed.beat.silence) == "no answer for 8 s; its processor time does not advance"


def test_a_process_whose_processor_time_advances_is_overdue_only_when_a_lease_is() -> None:
    followed = Followed(lambda now: now)
    assert followed.until(59.5) is Pulse.SILENT
    assert followed.until(60.0) is Pulse.OVERDUE
    assert followed.beat.silence.uses_processor is True


def test_one_hundredth_of_a_second_in_two_seconds_is_a_sign_that_it_works() -> None:
    followed = Followed(lambda now: now // 1.5 / 100)
    assert followed.until(30.0) is Pulse.SILENT


def test_a_processor_time_that_nobody_can_read_proves_nothing() -> None:
    followed = Followed(lambda now: None)
    assert followed.until(59.5) is Pulse.SILENT
    assert followed.beat.silence.uses_processor is None


def test_a_busy_process_that_is_stopped_later_hangs_two_seconds_after_that() -> None:
    followed = Followed(lambda now: min(now, 20.0))
    followed.until(30.0)
    assert followed.first(Pulse.HUNG) == 22.5


def test_a_reading_that_is_old_convicts_nobody() -> None:
    followed = Followed(lambda now: 1.5)
    followed.until(5.5)
    followed.beat.ask()  # this one gets no answer
    assert followed.until(59.5) is Pulse.SILENT


def test_an_answer_ends_the_silence_and_what_was_read_in_it() -> None:
    followed = Followed(lambda now: 1.5)
    followed.until(7.5)
    followed.beat.heard(followed.now)
    assert followed.beat.silence.seconds == 0.0
    assert followed.until(11.0) is Pulse.ANSWERS
    assert followed.until(11.5) is Pulse.SILENT
    assert followed.until(15.0) is Pulse.SILENT
    assert followed.until(15.5) is Pulse.HUNG


def test_an_answer_to_a_question_of_an_earlier_silence_is_not_taken() -> None:
    followed = Followed(lambda now: 1.5)
    followed.until(7.5)
    followed.beat.ask()
    followed.beat.heard(followed.now)
    followed.beat.read(1.5)
    assert followed.beat.silence.uses_processor is None


def test_an_observer_that_was_frozen_for_an_hour_blames_nobody_for_it() -> None:
    beat = Heartbeat(LIMITS, now=0.0)
    assert beat.look(0.5, LIMITS.interval) is Pulse.ANSWERS
    assert beat.look(3_600.0, LIMITS.interval) is Pulse.ANSWERS
    assert beat.silence.seconds == 1.5
