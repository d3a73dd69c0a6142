"""The transactions in the log of a broker, as Kafka's own tool prints them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from serving import apache_kafka

_BATCH: Final = re.compile(
    r"baseOffset: .* count: (?P<count>\d+) .* producerId: (?P<id>-?\d+) producerEpoch: (?P<epoch>-?\d+) "
    r".* isTransactional: (?P<transactional>\w+) isControl: (?P<control>\w+) .* isvalid: (?P<valid>\w+)"
)
_MARKER: Final = re.compile(r"endTxnMarker: (\w+)")


@dataclass(frozen=True)
class EndedTransaction:
    """A transaction in one partition.

    Attributes:
        end: `COMMIT` or `ABORT`.
    """

    producer_id: int
    epoch: int
    records: int
    end: str


def ended_transactions(data: Path, topic: str) -> list[EndedTransaction]:
    """Read the markers of a topic from the files of a broker.

    Raises:
        AssertionError: A batch is damaged, or belongs to no transaction.
    """
    files = sorted(data.glob(f"{topic}-*/*.log"))
    command = apache_kafka.command(
        "org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", ",".join(map(str, files))
    )
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: list[EndedTransaction] = []
    records: Counter[int] = Counter()
    number = (0, 0)
    for line in printed.splitlines():
        if batch := _BATCH.match(line):
            assert (batch["valid"], batch["transactional"]) == ("true", "true"), line
            number = int(batch["id"]), int(batch["epoch"])
            if batch["control"] == "false":
                records[number[0]] += int(batch["count"])
        elif marker := _MARKER.search(line):
            found.append(EndedTransaction(*number, records.pop(number[0], 0), marker[1]))
    return found
