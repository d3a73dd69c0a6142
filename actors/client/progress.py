"""The live line that `wait(progress=True)` and `run` show.

On a terminal one line is redrawn below the program's output. In a notebook the cell's output is updated.
Elsewhere (a file, a pipe, the log of a CI run) a plain line is printed every two seconds. Outside notebooks,
all lines go to stderr.

A handle at the end of a notebook's cell is shown as a card. While the job runs, a thread redraws the card
each second, in the same place. A saved notebook keeps the last card. Outside notebooks the handle is text.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from html import escape
from math import inf
from types import TracebackType
from typing import Any, Final, Protocol

import ray
from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.actors.shared.job_report import NO_CHECKPOINTS, JobReport, headline
from penstock.runtime.error_text import escaped, shortened
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.executor import JobStatus

logger = logging.getLogger(__name__)

#: Seconds between two plain lines.
PLAIN_INTERVAL: Final = 2.0
#: Seconds over which a rate is averaged.
_RATE_WINDOW: Final = 5.0

#: Colours of states; other states have no colour.
COLOURS: Final = {
    "running": "green",
    "finished": "green",
    "restarting": "yellow",
    "failing": "yellow",
    "stopping": "yellow",
    "cancelling": "yellow",
    "cancelled": "yellow",
    "failed": "red",
}


class ProgressText:
    """Formats the line: state, records in and out with their rates, last checkpoint, restarts, time.

    The counts of records begin at 0 with each attempt.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int, int]] = deque()

    def line(self, report: JobReport, now: float) -> str:
        attempt = report.statistics.attempt
        if self._seen and (self._seen[-1][1] != attempt or self._seen[-1][2] > report.records_in):
            self._seen.clear()
        self._seen.append((now, attempt, report.records_in, report.records_out))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_WINDOW:
            self._seen.popleft()
        parts = [
            f"{report.name}: {report.status.value}",
            f"in {report.records_in:,} ({self._rate(2)})",
            f"out {report.records_out:,} ({self._rate(3)})",
            _checkpoint(report),
            f"restarts {report.statistics.restarts}",
            _duration(report.duration),
        ]
        return escaped(" | ".join(parts)).replace("\n", "\\n")

    def _rate(self, column: int) -> str:
        first, last = self._seen[0], self._seen[-1]
        seconds = last[0] - first[0]
        if seconds <= 0:
            return "-/s"
        return f"{max(0, last[column] - first[column]) / seconds:,.0f}/s"


def _checkpoint(report: JobReport) -> str:
    if report.storage is None:
        return "no checkpoints"
    last = report.statistics.last_checkpoint_id
    if last is None:
        return "no checkpoint yet"
    known = report.checkpoints
    if known is None or known.latest_completed_at is None or report.status.is_terminal:
        return f"checkpoint {last}"
    ago = max(0.0, report.submitted_at + report.duration - known.latest_completed_at)
    return f"checkpoint {last} ({_duration(ago)} ago)"


def _duration(seconds: float) -> str:
    if seconds == inf:
        return "inf s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


#: Maximum number of characters shown of the cause of a restart.
_LONGEST_CAUSE: Final = 2_000


class FailureNotices:
    """Logs why a job restarts while a caller waits for it: each cause once, then how often it has occurred.

    A cause that occurs again is logged at its 2nd, 4th, 8th time and so on. The failure that ends the job is
    not logged, because `wait` raises it. The job's warnings are logged, too, except the one about missing
    checkpoints, which the submission has logged.
    """

    def __init__(self, write: Callable[[str], None] = logger.warning) -> None:
        self._write = write
        self._newest = (-1, -inf)
        self._counts: Counter[object] = Counter()
        self._warnings = {NO_CHECKPOINTS}

    def update(self, report: JobReport) -> None:
        for warning in report.warnings:
            if warning not in self._warnings:
                self._warnings.add(warning)
                self._write(f"job {report.job_id}: {escaped(warning)}")
        if report.status.is_terminal:
            return
        for failure in report.failures:
            if (key := (failure.attempt, failure.at)) <= self._newest:
                continue
            self._newest = key
            root = failure.root
            # A message may name the record, which differs each time.
            same = root.message if root.raised_at is None else (root.operator, root.raised_at)
            self._counts[same] += 1
            count, cause = self._counts[same], escaped(shortened(headline(root), _LONGEST_CAUSE))
            if count == 1:
                self._write(f"job {report.job_id} restarts: {cause}")
            elif count & (count - 1) == 0:
                first = cause.partition("\n")[0]
                self._write(f"job {report.job_id} has restarted {count} times for the same reason: {first}")


class Display(Protocol):
    def show(self, line: str, status: JobStatus) -> None: ...

    def close(self) -> None: ...


class PlainDisplay:
    """Prints a line every two seconds, and when the state changes."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._status: JobStatus | None = None
        self._next_at = float("-inf")

    def show(self, line: str, status: JobStatus) -> None:
        now = self._clock()
        if now < self._next_at and status is self._status:
            return
        self._next_at = now + PLAIN_INTERVAL
        self._status = status
        self._write(line)

    def close(self) -> None: ...


class TerminalDisplay:
    def __init__(self, console: Console) -> None:
        # The program's own output disturbs the line only if stdout is also the terminal.
        both = sys.stdout.isatty()
        self._live = Live(
            console=console, auto_refresh=False, redirect_stdout=both, redirect_stderr=both, transient=False
        )
        self._live.start()

    def show(self, line: str, status: JobStatus) -> None:
        self._live.update(Text(line, style=COLOURS.get(status.value, "")), refresh=True)

    def close(self) -> None:
        self._live.stop()


class NotebookDisplay:
    """Updates one piece of a cell's output, without a widget."""

    def __init__(self) -> None:
        self._ipython: Any = importlib.import_module("IPython.display")
        self._handle: Any = None

    def show(self, line: str, status: JobStatus) -> None:
        self.update({"text/plain": line})

    def update(self, content: Mapping[str, str]) -> None:
        """Replace the shown content; `content` has one text for each MIME type."""
        if self._handle is None:
            self._handle = self._ipython.display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def close(self) -> None: ...


class Progress:
    """Shows the progress of one job inside a `with` block."""

    def __init__(self, display: Display | None = None) -> None:
        self._display = display if display is not None else find_display()
        self._text = ProgressText()

    def update(self, report: JobReport) -> None:
        self._display.show(self._text.line(report, time.monotonic()), report.status)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.close()


def find_display() -> Display:
    console = Console(stderr=True)
    if console.is_jupyter:
        return NotebookDisplay()
    if console.is_terminal and not console.is_dumb_terminal:
        return TerminalDisplay(console)
    return PlainDisplay(lambda line: print(line, file=sys.stderr, flush=True))


#: Seconds between two cards.
_INTERVAL: Final = 1.0

_BOX: Final = (
    "border:1px solid rgba(128,128,128,.5);border-radius:8px;padding:8px 12px;display:inline-block;"
    "font-family:system-ui,sans-serif"
)


def card(report: JobReport, line: str, link: str | None = None) -> str:
    """Return a job as HTML, with the text of `ProgressText`; escapes all text from users."""
    rows = [f"<b>{escape(report.name)}</b> <code>{escape(report.job_id)}</code>"]
    rows.append(escape(line.removeprefix(f"{report.name}: ")))
    bottleneck = report.bottleneck
    if bottleneck is not None and not report.status.is_terminal:
        rows.append(escape(str(bottleneck)))
    if report.failure is not None:
        lines = escape(headline(report.failure.root)).splitlines()
        rows.append(f"<code>{'<br>'.join(lines)}</code>")
    if link is not None:
        rows.append(f'<a href="{escape(link, quote=True)}" target="_blank">open its page</a>')
    return f'<div style="{_BOX}">{"<br>".join(rows)}</div>'


class LiveCard:
    """Redraws the card of one job each second, until the job has ended or does not answer."""

    def __init__(
        self,
        report: Callable[[], JobReport],
        update: Callable[[str, str], None],
        link: Callable[[], str | None],
    ) -> None:
        self._report = report
        self._update = update
        self._link = link
        self._text = ProgressText()

    def draw(self) -> JobReport:
        report = self._report()
        line = self._text.line(report, time.monotonic())
        self._update(card(report, line, self._link()), line)
        return report

    def follow(self) -> threading.Thread:
        thread = threading.Thread(target=self._follow, name="job card", daemon=True)
        thread.start()
        return thread

    def _follow(self) -> None:
        while True:
            time.sleep(_INTERVAL)
            try:
                if self.draw().status.is_terminal:
                    return
            except (PenstockError, ray.exceptions.RayError, ValueError):
                return  # the job can't be reached any more; the last card stays


def show_card(report: Callable[[], JobReport], link: Callable[[], str | None]) -> None:
    """Show a card in the running cell's output, and update it until the job ends."""
    output = NotebookDisplay()

    def update(page: str, line: str) -> None:
        output.update({"text/html": page, "text/plain": line})

    live = LiveCard(report, update, link)
    if not live.draw().status.is_terminal:
        live.follow()
