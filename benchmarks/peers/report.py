"""Lines that a peer's program prints for its finished jobs, and processor time.

The peers' environments also import this module, so it needs only the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

#: Prefix of lines for the benchmark; peers also print other lines.
MARK = "@report "


@dataclass(frozen=True)
class Ended:
    """A finished job.

    Attributes:
        query: Name of its query.
        count: Events or rows that it has read.
        seconds: Seconds from its submission to its end.
        busy: Processor seconds of all its processes.
        rows: Its results, if requested.
        failure: Reason why the peer can't run it; the numbers are then invalid.
    """

    query: str
    count: int
    seconds: float = 0.0
    busy: float = 0.0
    rows: list[Mapping[str, Any]] | None = None
    failure: str | None = None

    def say(self) -> None:
        """Print the job for the benchmark."""
        print(MARK + json.dumps(asdict(self), default=plain), flush=True)


def plain(value: Any) -> Any:
    """A value of a result for JSON: times without their zone, which is UTC, and decimals as floats."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return float(value) if isinstance(value, Decimal) else str(value)


def said(lines: str) -> Iterator[Ended]:
    r"""The finished jobs in the output of a program.

    Example:
        >>> next(said('noise\n@report {"query": "q1", "count": 7}')).count
        7
    """
    for line in lines.splitlines():
        if line.startswith(MARK):
            yield Ended(**json.loads(line.removeprefix(MARK)))


def busy_seconds(counts: Callable[[str], bool] = lambda command: True) -> float:
    """Processor seconds of this process and of its descendants.

    Args:
        counts: Whether a descendant counts, by its command line.
    """
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended meanwhile
            parents[int(folder.name)] = int(fields[1])
            seconds[int(folder.name)] = sum(map(int, fields[11:15])) / tick
    own = os.getpid()
    total = seconds.get(own, 0.0)
    for pid in parents:
        above = parents[pid]
        while above not in (0, own):
            above = parents.get(above, 0)
        if above == own and counts(_command(pid)):
            total += seconds[pid]
    return total


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
