"""The page of a running job that a test acts for, opened once for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.acting import JOB, ActingJob, acting_job, leave_snapshot
from serving.browser import opened
from serving.in_thread import served
from serving.scripted import ScriptedDirectory


@dataclass(frozen=True)
class LivePage:
    """A page, the job that it shows, and the server's address."""

    page: Any
    job: ActingJob
    address: str

    def begin(self) -> None:
        """The job as it was at first, and a page that has forgotten what it was asked."""
        fresh = acting_job(str(self.job.current.storage))
        self.job.current, self.job.details, self.job.failure = fresh.current, fresh.details, None
        self.job.asked.clear()
        self.job.goes_on.set()
        self.job.answers.set()
        self.page.set_viewport_size({"width": 1280, "height": 900})
        self.page.goto(f"{self.address}#/")
        self.page.locator(".tabs").wait_for(state="detached")
        self.page.goto(f"{self.address}#/jobs/{JOB}/log")
        self.page.locator(".tabs").wait_for()

    def reload(self) -> None:
        """Undo what a test has done to the browser's own objects."""
        self.page.reload()
        self.page.locator(".tabs").wait_for()

    def show(self, view: str) -> None:
        """One view of the job."""
        self.page.goto(f"{self.address}#/jobs/{JOB}/{view}")
        self.page.locator(f'.tabs a[aria-current="page"][href$="/{view.split("/")[0]}"]').wait_for()

    def press(self, action: str) -> Any:
        """One of the actions; the dialog that asks first."""
        self.page.get_by_role("group", name="Actions").get_by_role("button", name=action, exact=True).click()
        return self.page.get_by_role("dialog")

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def is_cut(self) -> bool:
        """Whether any table is wider than its place."""
        return bool(
            self.page.evaluate(
                "[...document.querySelectorAll('.scroll')].some((one) => one.scrollWidth > one.clientWidth)"
            )
        )


@contextmanager
def live_page(browser: Any, folder: Path) -> Iterator[LivePage]:
    """The page of a job whose storage is a folder with a real snapshot."""
    leave_snapshot(folder)
    job = acting_job(str(folder))
    with served(ScriptedDirectory(job)) as server:
        login = f"{server.address}#token={server.access.new_login()}&job={JOB}"
        with opened(browser, login) as page:
            page.locator(".tabs").wait_for()
            try:
                yield LivePage(page, job, server.address)
            finally:
                job.goes_on.set()
                job.answers.set()
