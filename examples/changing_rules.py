"""Fraud detection with changing rules: report payments above the limit of their country.

    python examples/changing_rules.py --output alarms

Limits are a second stream. Every subtask gets all of them and keeps them in broadcast state. So a new limit
needs no restart. State is part of every checkpoint, so a job that is restarted, even at another parallelism,
still has the limits.

Payments wait in keyed state until event time has passed them. So each payment is compared with the limit that
was in force at its time, whichever stream is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    MapState,
    PenstockError,
    RuntimeContext,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.connected import BroadcastContext, BroadcastState, KeyedBroadcastProcessFunction

SECOND = 1_000_000
COUNTRIES = ("at", "de", "fr")
CARDS = 20


class Payment(NamedTuple):
    """A payment with a card."""

    second: int
    card: str
    country: str
    amount: int


class Limit(NamedTuple):
    """A country's limit, which takes effect at `second`."""

    second: int
    country: str
    amount: int


class AboveLimit(KeyedBroadcastProcessFunction[str, Payment, Limit, dict[str, Any]]):
    """Emits an alarm for each payment above the limit that was in force at its time."""

    #: Payments that event time has not passed yet, by second; a card pays once a second.
    waiting = MapState(int, Payment)

    #: Limits by country and the second at which they take effect.
    limits = BroadcastState(tuple, int)

    def process_element(self, value: Payment, ctx: RuntimeContext) -> None:
        """Store the payment until event time has passed it; then all limits up to its time have arrived."""
        self.waiting[value.second] = value
        ctx.timer_service.register_event_time_timer(value.second * SECOND)

    def process_broadcast_element(self, value: Limit, ctx: BroadcastContext) -> None:
        """Store the limit; every subtask receives it."""
        self.limits[value.country, value.second] = value.amount

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterable[dict[str, Any]]:
        """Compare a payment with the limit that was in force at its time."""
        payment = self.waiting.pop(at // SECOND)
        since = [s for country, s in self.limits if country == payment.country and s <= payment.second]
        if since and payment.amount > self.limits[payment.country, max(since)]:
            yield {**payment._asdict(), "limit": self.limits[payment.country, max(since)]}


def payment(i: int) -> Payment:
    """The i-th payment; every card pays once a second."""
    second, number = divmod(i, CARDS)
    return Payment(second, f"card-{number}", COUNTRIES[i % len(COUNTRIES)], i * 7919 % 1000)


def limit(i: int) -> Limit:
    """The i-th limit; every country gets a new limit each minute."""
    minute, number = divmod(i, len(COUNTRIES))
    return Limit(60 * minute, COUNTRIES[number], 500 + 31 * i % 500)


def second_of(event: Payment | Limit) -> int:
    """Event time in microseconds."""
    return event.second * SECOND


def alarms_of(output: Path) -> list[dict[str, Any]]:
    """The alarms in the committed files."""
    files = sorted(output.glob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    """Run the job and print the number of alarms by country."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that alarms are committed to")
    parser.add_argument("--payments", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "changing-rules",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    minutes = options.payments // CARDS // 60 + 1
    times: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        second_of
    )
    payments = env.from_source(
        "payments", GeneratorSource(payment, count=options.payments), watermarks=times, parallelism=1
    )
    limits = env.from_source(
        "limits", GeneratorSource(limit, count=minutes * len(COUNTRIES)), watermarks=times, parallelism=1
    )
    (
        payments.key_by(lambda payment: payment.card)
        .connect(limits.broadcast())
        .process("above-limit", AboveLimit())
        .sink("alarms", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"changing_rules: {error}", file=sys.stderr)
        return 1
    countries = [alarm["country"] for alarm in alarms_of(output)]
    for country in COUNTRIES:
        print(f"{country}: {countries.count(country)} payments above the limit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
