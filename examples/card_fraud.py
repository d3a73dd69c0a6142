"""Detects card fraud by a pattern: small test payments, then a large payment that is not confirmed.

    python examples/card_fraud.py --output alarms

An alarm means two small payments in a row, a large payment directly after them, and no confirmation within
five minutes of the first payment. The pattern ends with the absence of a record, so time alone completes it.
Payments arrive out of order; the job processes them in the order of their timestamps.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock import (
    Checkpointing,
    FileSink,
    GeneratorSource,
    PenstockError,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.patterns import Pattern

CARDS = 50
SECOND = 1_000_000

#: Seconds between the first small payment and the alarm.
LIMIT = 300

#: Maximum seconds by which an event is out of order.
DELAY = 20


class Event(NamedTuple):
    """A payment; with amount 0, the cardholder's confirmation of an earlier payment."""

    card: str
    second: int
    amount: int


def is_small(event: Event) -> bool:
    """Whether a payment may be a test of the card."""
    return 0 < event.amount < 3


def is_large(event: Event, match: dict[str, list[Event]]) -> bool:
    """Whether a payment is large compared with the small payments before it."""
    return event.amount > 100 * max(small.amount for small in match["small"])


def is_confirmation(event: Event) -> bool:
    """Whether the holder of the card has confirmed a payment."""
    return event.amount == 0


FRAUD: Pattern[Event] = (
    Pattern.begin("small", where=is_small)
    .times(2)
    .consecutive()
    .next("large", where=is_large)
    .not_followed_by("confirmation", where=is_confirmation)
    .within(timedelta(seconds=LIMIT))
)


def alarm(match: dict[str, list[Event]]) -> dict[str, Any]:
    """Make the alarm for a match."""
    (large,) = match["large"]
    return {"card": large.card, "second": large.second, "amount": large.amount}


def event(i: int) -> Event:
    """The i-th event: every third card repeats small, small, large; some of these cards confirm."""
    turn, number = divmod(i, CARDS)
    noise = (i * 7919) % DELAY
    amounts = (1, 2, 900, 0 if number % 4 == 0 else 40, 15) if number % 3 == 0 else (40, 1, 15, 900, 0)
    return Event(f"card-{number}", 30 * turn + noise, amounts[turn % len(amounts)])


def alarms_of(output: Path) -> list[dict[str, Any]]:
    """The alarms in the committed files, sorted."""
    lines = [line for file in output.glob("part-*") for line in file.read_text(encoding="utf-8").splitlines()]
    return sorted(map(json.loads, lines), key=lambda found: (found["card"], found["second"]))


def main() -> int:
    """Run the job and print the number of alarms."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", required=True, metavar="DIR", help="folder that alarms are committed to")
    parser.add_argument("--events", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    output = Path(options.output).resolve()

    env = StreamEnvironment(
        "card-fraud",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=str(output.with_name(f"{output.name}-checkpoints"))),
    )
    strategy: WatermarkStrategy[Event] = WatermarkStrategy.for_bounded_out_of_orderness(DELAY)
    strategy = strategy.with_timestamp_assigner(lambda payment: payment.second * SECOND)
    (
        env.from_source(
            "payments", GeneratorSource(event, count=options.events), watermarks=strategy, parallelism=1
        )
        .key_by(lambda payment: payment.card)
        .pattern(FRAUD)
        .select("fraud", alarm)
        .sink("alarms", FileSink.json(output))
    )
    try:
        env.run()
    except PenstockError as error:
        print(f"card_fraud: {error}", file=sys.stderr)
        return 1
    found = alarms_of(output)
    print(f"{len(found)} alarms for {len({each['card'] for each in found})} cards")
    return 0


if __name__ == "__main__":
    sys.exit(main())
