"""A job in the output of a notebook's cell: a card that follows the job.

A handle at the end of a cell is shown as a card. While the job runs, a thread draws the card anew each
second, in the place where it stands. A notebook that is kept has the last one. Without a notebook the handle
is text.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from html import escape
from typing import Any, Final

import ray

from penstock.actors.client.progress import ProgressText
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import PenstockError

#: Seconds between two cards.
_INTERVAL: Final = 1.0
_BOX: Final = (
    "border:1px solid rgba(128,128,128,.5);border-radius:8px;padding:8px 12px;display:inline-block;"
    "font-family:system-ui,sans-serif"
)


def card(report: JobReport, line: str, link: str | None = None) -> str:
    """A job as HTML; everything that users wrote is escaped.

    Args:
        line: What `ProgressText` says of the report.
        link: Address of the page of the job.
    """
    rows = [f"<b>{escape(report.name)}</b> <code>{escape(report.job_id)}</code>"]
    rows.append(escape(line.removeprefix(f"{report.name}: ")))
    bottleneck = report.bottleneck
    if bottleneck is not None and not report.status.is_terminal:
        rows.append(escape(str(bottleneck)))
    if report.failure is not None:
        rows.append(f"<code>{escape(str(report.failure.root).splitlines()[0])}</code>")
    if link is not None:
        rows.append(f'<a href="{escape(link, quote=True)}" target="_blank">open its page</a>')
    return f'<div style="{_BOX}">{"<br>".join(rows)}</div>'


class LiveCard:
    """Draws the card of one job again and again, until the job has ended or does not answer.

    Args:
        report: Asks for a report.
        update: Draws a card, given as HTML and as text, instead of the one before.
        link: Tells the address of the job's page, if there is one.
    """

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
        """Draw the card once."""
        report = self._report()
        line = self._text.line(report, time.monotonic())
        self._update(card(report, line, self._link()), line)
        return report

    def follow(self) -> threading.Thread:
        """Draw it in a thread from now on."""
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
                return  # the cluster has gone; the last card stays


def show_card(report: Callable[[], JobReport], link: Callable[[], str | None]) -> None:
    """Show a card in the output of the cell that runs, and let it follow the job."""
    ipython: Any = importlib.import_module("IPython.display")
    shown: list[Any] = []

    def update(page: str, line: str) -> None:
        content = {"text/html": page, "text/plain": line}
        if shown:
            shown[0].update(content, raw=True)
        else:
            shown.append(ipython.display(content, raw=True, display_id=True))

    live = LiveCard(report, update, link)
    if not live.draw().status.is_terminal:
        live.follow()
