"""File names of a sink: whose file it is can be read from the name, and from nothing else.

`_inprogress-<job>-<operator>-<subtask>-<attempt>-<n>.<ext>` until it is committed, `part-...` from then on. A
job id may hold `-`, and an operator id may hold anything. The operator is escaped to hold no `-`, so a name
reads back in one way only, from its right end.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

IN_PROGRESS: Final = "_inprogress-"
COMMITTED: Final = "part-"

_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")
_LONGEST_OPERATOR: Final = 96
# obstore's local store appends `#<n>` while it uploads.
_NUMBERS: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.[A-Za-z0-9.]+(?:#\d+)?")


def file_safe(text: str) -> str:
    """Escape any text to ASCII letters, digits, `_`, `.` and `=XX`; long texts end in a hash.

    Example:
        >>> file_safe("count-words/é")
        'count=2Dwords=2F=C3=A9'
    """
    escaped = "".join(
        char if char in _SAFE else "".join(f"={byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )
    if len(escaped) <= _LONGEST_OPERATOR:
        return escaped
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{escaped[: _LONGEST_OPERATOR - 22]}=={digest}"


@dataclass(frozen=True, slots=True)
class PartNames:
    """Names of the files that one subtask of one attempt writes.

    Attributes:
        operator_id: The sink's operator, any text.
        subtask: Index of the subtask.
        attempt: Number of the attempt.
        extension: Without a dot.

    Example:
        >>> PartNames("job-1", "out", 0, 2, "jsonl").committed(5)
        'part-job-1-out-0-2-5.jsonl'
    """

    job_id: str
    operator_id: str
    subtask: int
    attempt: int
    extension: str

    @property
    def owner(self) -> str:
        """What all names of this job's operator have behind their first word."""
        return f"{self.job_id}-{file_safe(self.operator_id)}-"

    def in_progress(self, number: int) -> str:
        """Name of a file that is not committed."""
        return f"{IN_PROGRESS}{self._stem}{number}.{self.extension}"

    def committed(self, number: int) -> str:
        """Name of a committed file."""
        return f"{COMMITTED}{self._stem}{number}.{self.extension}"

    @property
    def probe(self) -> str:
        """Name of the empty file that proves that the directory can be written."""
        return f"_probe-{self._stem}0"

    def next_number(self, existing: Iterable[str]) -> int:
        """The number after all that this subtask and attempt has used among existing names."""
        used = [-1]
        for name in existing:
            for word in (IN_PROGRESS, COMMITTED):
                match = self._numbers(name, word)
                if match is not None and match[:2] == (self.subtask, self.attempt):
                    used.append(match[2])
        return max(used) + 1

    def leftovers(self, existing: Iterable[str]) -> list[str]:
        """Names of files that earlier attempts of this job's operator began and never committed."""
        found = []
        for name in existing:
            numbers = self._numbers(name, IN_PROGRESS)
            if numbers is not None and numbers[1] < self.attempt:
                found.append(name)
        return found

    def is_pair(self, in_progress: str, committed: str) -> bool:
        """Whether these are the two names of one file that this operator wrote, in any job.

        Example:
            >>> names = PartNames("job-2", "out", 0, 1, "csv")
            >>> names.is_pair("_inprogress-job-1-out-0-2-5.csv", "part-job-1-out-0-2-5.csv")
            True
            >>> names.is_pair("_inprogress-job-1-out-0-2-5.csv", "part-job-1-out-0-2-6.csv")
            False
        """
        stem = in_progress.removeprefix(IN_PROGRESS)
        if stem == in_progress or committed != COMMITTED + stem:
            return False
        mine = rf".+-{re.escape(file_safe(self.operator_id))}-{_NUMBERS.pattern}"
        return re.fullmatch(mine, stem) is not None

    @property
    def _stem(self) -> str:
        return f"{self.owner}{self.subtask}-{self.attempt}-"

    def _numbers(self, name: str, word: str) -> tuple[int, int, int] | None:
        prefix = word + self.owner
        match = _NUMBERS.fullmatch(name, len(prefix)) if name.startswith(prefix) else None
        return None if match is None else (int(match[1]), int(match[2]), int(match[3]))
