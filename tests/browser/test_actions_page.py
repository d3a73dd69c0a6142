"""Actions on a running job: what is asked for, and how its end is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.acting import JOB, ActingJob, acting_job
from serving.browser import PATIENCE, opened
from serving.in_thread import served
from serving.live_page import LivePage
from serving.scripted import ScriptedDirectory

from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.errors import CheckpointError

expect.set_options(timeout=PATIENCE)


def test_a_checkpoint_is_taken_and_its_result_shown(live: LivePage) -> None:
    dialog = live.press("Checkpoint")
    dialog.get_by_label("Write all state anew").check()
    expect(dialog.locator(".command code")).to_have_text(f"penstock checkpoint {JOB} --full")
    dialog.get_by_role("button", name="Take a checkpoint").click()
    expect(dialog).to_contain_text("Checkpoint 7 took 250 ms: 4.00 KiB, 512 B of it new.")
    assert live.job.asked == [("checkpoint", {"full": True})]


def test_a_savepoint_shows_its_time_and_its_result_stays_when_the_dialog_is_closed(live: LivePage) -> None:
    live.job.goes_on.clear()
    dialog = live.press("Savepoint")
    dialog.get_by_label("Folder").fill("/backup")
    dialog.get_by_role("button", name="Take a savepoint").click()
    expect(dialog.get_by_role("timer")).to_have_text("1 s")
    live.button("Close").click()
    notice = live.page.locator(".notice").filter(has_text="Savepoint")
    expect(notice).to_contain_text("Savepoint has been running for")
    live.job.goes_on.set()
    expect(notice).to_contain_text(f"It is at /backup/savepoint-{JOB}-8-1.")
    live.show("checkpoints")
    expect(notice).to_be_visible()
    live.button("Dismiss").click()
    expect(notice).to_have_count(0)
    assert live.job.asked == [("savepoint", {"savepoint": "/backup"})]


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_is_stopped_with_and_without_a_drain(live: LivePage, drain: bool) -> None:
    dialog = live.press("Stop")
    expect(dialog.get_by_role("checkbox")).to_be_focused()
    dialog.get_by_role("checkbox").set_checked(drain)
    command = f"penstock stop {JOB}{' --drain' if drain else ''}"
    expect(dialog.locator(".command code")).to_have_text(command)
    dialog.get_by_role("button", name="Stop the job").click()
    expect(dialog).to_contain_text(f"It is at /storage/savepoint-{JOB}-9-1.")
    assert live.job.asked == [("stop", {"savepoint": None, "drain": drain})]


def test_a_job_is_cancelled_only_by_a_button_that_looks_like_it(live: LivePage) -> None:
    dialog = live.press("Cancel")
    leave, confirm = live.button("Leave it"), live.button("Cancel the job")
    expect(leave).to_be_focused()
    colours = [each.evaluate("(one) => getComputedStyle(one).backgroundColor") for each in (leave, confirm)]
    assert colours[1] == "rgb(179, 38, 30)" != colours[0]
    leave.click()
    expect(dialog).to_have_count(0)
    assert live.job.asked == []
    live.press("Cancel")
    confirm.click()
    expect(dialog).to_contain_text("Done.")
    assert live.job.asked == [("cancel", {})]


def test_the_question_before_a_cancellation_says_what_is_left(live: LivePage) -> None:
    """The job has a savepoint at first, then none, then it keeps its checkpoints; last it has no snapshot."""
    report = live.job.current
    statistics = replace(report.statistics, last_checkpoint_id=4)
    only = tuple(each for each in report.checkpoint_history if not each.kind.is_savepoint)
    keeps = {**report.settings, "checkpointing.keep_after": str(KeepAfter.FAILURE_OR_CANCELLATION)}
    live.job.current = replace(report, statistics=statistics)
    dialog = live.press("Cancel")
    expect(dialog.locator(".notice")).to_have_text("Its checkpoints are deleted. Its savepoints stay.")
    live.job.current = replace(live.job.current, checkpoint_history=only)
    expect(dialog.locator(".notice.warning")).to_contain_text("So no later job can continue from its state.")
    live.job.current = replace(live.job.current, settings=keeps)
    expect(dialog.locator(".notice")).to_have_text("Its checkpoints stay in the storage.")
    live.job.current = replace(live.job.current, statistics=replace(statistics, last_checkpoint_id=None))
    expect(dialog.locator(".notice")).to_have_count(0)


def test_a_rescale_says_what_moves_and_asks_for_what_has_changed(live: LivePage) -> None:
    dialog = live.press("Rescale")
    expect(dialog.get_by_label("lines")).to_be_focused()
    expect(live.button("Rescale the job")).to_be_disabled()
    dialog.get_by_label("count").fill("2")
    expect(dialog).to_contain_text("count: 4 → 2 subtasks")
    live.button("Rescale the job").click()
    expect(dialog).to_contain_text("count has 2 subtasks now.")
    assert live.job.asked == [("rescale", {"parallelism": {"count": 2}})]


def test_an_action_that_fails_says_why_in_the_dialog_and_after_it(live: LivePage) -> None:
    live.job.failure = CheckpointError("checkpoint 7 has failed: count[3] has not acknowledged")
    dialog = live.press("Checkpoint")
    dialog.get_by_role("button", name="Take a checkpoint").click()
    expect(dialog.get_by_role("alert")).to_contain_text("count[3] has not acknowledged")
    live.button("Close").click()
    expect(live.page.locator(".notice.error")).to_contain_text("Checkpoint has failed after")


def test_nothing_is_asked_of_a_job_master_that_does_not_answer(live: LivePage) -> None:
    dialog = live.press("Cancel")
    live.job.answers.clear()
    expect(live.button("Cancel the job")).to_be_disabled()
    expect(dialog).to_contain_text("The JobMaster does not answer now.")
    live.button("Leave it").click()
    buttons = live.page.get_by_role("group", name="Actions").get_by_role("button")
    assert [each.is_disabled() for each in buttons.all()] == [True] * 5
    live.job.answers.set()
    expect(buttons.first).to_be_enabled()


def test_a_command_is_copied(live: LivePage) -> None:
    live.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    dialog = live.press("Checkpoint")
    live.button("Copy as command").click()
    expect(dialog.get_by_text("Copied", exact=True)).to_be_visible()
    assert live.page.evaluate("navigator.clipboard.readText()") == f"penstock checkpoint {JOB}"
    dialog.get_by_label("Write all state anew").check()
    expect(dialog.get_by_text("Copied", exact=True)).to_have_count(0)


def test_a_command_is_copied_without_the_clipboard_of_https(live: LivePage) -> None:
    live.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    live.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    dialog = live.press("Savepoint")
    live.button("Copy as command").click()
    expect(dialog.get_by_text("Copied", exact=True)).to_be_visible()
    assert live.page.evaluate("String(getSelection())").strip() == f"penstock savepoint {JOB}"
    live.reload()
    assert live.page.evaluate("navigator.clipboard.readText()") == f"penstock savepoint {JOB}"


def test_a_command_that_can_not_be_copied_is_selected(live: LivePage) -> None:
    live.page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    live.page.evaluate("document.execCommand = () => false")
    dialog = live.press("Savepoint")
    live.button("Copy as command").click()
    expect(dialog.get_by_text("Selected. Press Ctrl+C to copy it.")).to_be_visible()
    live.reload()


def test_a_server_that_only_shows_has_no_buttons(browser: Any, tmp_path: Path) -> None:
    job: ActingJob = acting_job(str(tmp_path))
    with served(ScriptedDirectory(job), read_only=True) as server:
        login = f"{server.address}#token={server.access.new_login()}&job={JOB}"
        with opened(browser, login) as page:
            expect(page.locator("h1")).to_have_text("words")
            expect(page.get_by_text("read only")).to_be_visible()
            expect(page.get_by_role("group", name="Actions")).to_have_count(0)
            expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
