"""State in the newest snapshot, configuration and the time line of a running job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import expect
from serving.acting import BEGAN, JOB
from serving.browser import PATIENCE
from serving.live_page import LivePage

from penstock.actors.master.job_reporter import settings_of
from penstock.actors.web import routes
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig, RocksDB, settings_as_text
from penstock.runtime.config.restart import ExponentialBackoff, FailureRate, FixedDelay
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.job.failover import FailureCause, FailureRecord

expect.set_options(timeout=PATIENCE)


def test_the_value_of_a_key_is_looked_up(live: LivePage) -> None:
    live.show("state")
    live.page.get_by_label("Key", exact=True).fill("7")
    live.button("Look up").click()
    found = live.page.locator(".found")
    expect(found).to_contain_text("Checkpoint 1 holds for the key 7:")
    value = int(found.locator("dd").inner_text())
    assert value % 300 == 7
    live.page.get_by_label("Key", exact=True).fill("seven")
    live.button("Look up").click()
    expect(live.page.get_by_text("Checkpoint 1 holds nothing for the key 'seven'")).to_be_visible()


def test_the_snapshot_that_has_the_value_is_named_also_when_an_older_one_is_shown(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def value(*asked: Any) -> dict[str, Any]:
        entry = {"part": None, "value": "42"}
        found = {"key": "7", "key_group": 3, "kind": "savepoint", "checkpoint_id": 9}
        return {**found, "found": True, "entries": [entry], "more": 0}

    live.show("state")
    expect(live.page.locator("main")).to_contain_text("Checkpoint 1 was completed")
    monkeypatch.setattr(routes, "value_of_key", value)
    live.page.get_by_label("Key", exact=True).fill("7")
    live.button("Look up").click()
    expect(live.page.locator(".found")).to_contain_text("Savepoint 9 holds for the key 7:")


def test_a_snapshot_says_where_it_is_and_what_it_holds(live: LivePage) -> None:
    live.show("state")
    expect(live.page.locator("main")).to_contain_text("KiB in 2 files.")
    expect(live.page.locator("main")).to_contain_text(f"{live.job.current.storage}/{JOB}/chk-1-1")
    table = live.page.get_by_role("region", name="State by operator")
    expect(table).to_contain_text("a value for each key")
    expect(table).to_contain_text("a list; each value belongs to one subtask")
    expect(table).not_to_contain_text("split_distribute")


def test_small_state_is_in_the_metadata(live: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(report: Any) -> dict[str, Any]:
        place = {"location": "/elsewhere/savepoint-x", "kind": "savepoint", "attempt": 1}
        return {**place, "checkpoint_id": 8, "completed_at": BEGAN, "size": 356, "files": 0, "operators": []}

    monkeypatch.setattr(routes, "newest_snapshot", newest)
    live.show("state")
    expect(live.page.locator("main")).to_contain_text("Savepoint 8 was completed")
    expect(live.page.locator("main")).to_contain_text("It has 356 B in the metadata.")
    expect(live.page.locator("main")).to_contain_text("It is at /elsewhere/savepoint-x.")


def test_the_size_of_an_operator_with_two_states_stands_there_once(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def operator(name: str, size: int, *states: str) -> dict[str, Any]:
        kinds = [
            {"name": each, "kind": "list", "entries": 1, "is_exact": True, "of_type": ""} for each in states
        ]
        return {"operator_id": name, "size": size, "in_flight": 0, "states": kinds}

    def newest(report: Any) -> dict[str, Any]:
        place = {"location": "/elsewhere/savepoint-x", "kind": "savepoint", "attempt": 1, "files": 0}
        operators = [operator("join", 356, "left", "right"), operator("out", 356, "committables")]
        return {**place, "checkpoint_id": 8, "completed_at": BEGAN, "size": 712, "operators": operators}

    monkeypatch.setattr(routes, "newest_snapshot", newest)
    live.show("state")
    table = live.page.get_by_role("region", name="State by operator")
    expect(table.locator("tbody tr")).to_have_count(3)
    expect(table.get_by_text("356 B")).to_have_count(2)
    expect(table.locator('td[rowspan="2"]')).to_have_text(["join", "356 B", "0"])


def test_settings_have_units_and_say_what_differs(live: LivePage) -> None:
    live.show("configuration")
    rows = live.page.locator(".settings tbody tr")

    def row(name: str) -> Any:
        return rows.filter(has=live.page.get_by_text(name, exact=True))

    expect(row("checkpointing.mode")).to_contain_text("exactly once")
    expect(row("checkpointing.timeout")).to_contain_text("10 min")
    expect(row("advanced.buffer_rows")).to_contain_text("16,384")
    expect(row("advanced.arrow_buffer_bytes")).to_contain_text("4 MiB")
    expect(row("checkpointing.max_alignment_bytes")).to_contain_text("no limit")
    expect(row("advanced.credits").locator("td")).to_have_text(["advanced.credits", "4", "8"])
    expect(live.page.locator(".settings")).not_to_contain_text("CheckpointingMode")
    live.page.get_by_label("Only what differs").check()
    expect(rows.locator("td:first-child")).to_have_text(
        ["checkpointing", "checkpointing.every", "checkpointing.storage", "advanced.credits"]
    )
    live.page.get_by_label("Search").fill("cred")
    expect(rows).to_have_count(1)


@pytest.mark.parametrize("view", ["state", "configuration"])
def test_on_a_phone_names_break_between_their_words_only(live: LivePage, view: str) -> None:
    live.page.set_viewport_size({"width": 390, "height": 844})
    live.show(view)
    live.page.locator("td code").first.wait_for()
    lines = live.page.locator("td code").evaluate_all(
        """(all) => all.flatMap((one) => [...one.childNodes])
          .filter((node) => node.nodeType === Node.TEXT_NODE && node.length)
          .map((node) => {
            const range = document.createRange();
            range.selectNodeContents(node);
            return [node.data, range.getClientRects().length];
          })"""
    )
    assert lines
    assert [word for word, count in lines if count > 1] == []


def test_the_page_knows_the_defaults_of_all_settings(live: LivePage) -> None:
    """A default that changes must change in `setting_names.js`, too."""
    plain = settings_of(JobGraph("words", ()), JobConfig())
    expected = {name: value for name, value in plain.items() if "." not in name}
    parts: list[JobConfig] = [
        JobConfig(restart=each()) for each in (FixedDelay, ExponentialBackoff, FailureRate)
    ]
    for config in (
        JobConfig(checkpointing=Checkpointing(every=1)),
        JobConfig(state_backend=RocksDB()),
        *parts,
    ):
        settings = settings_as_text(config)
        for name, value in settings.items():
            part, _, rest = name.partition(".")
            if rest and name != "checkpointing.every":
                expected[f"{settings[part]}.{rest}"] = value
    known = live.page.evaluate("import('./setting_names.js').then((module) => module.DEFAULTS)")
    assert known == expected


def test_states_have_durations_and_a_failure_is_said_once(live: LivePage) -> None:
    live.show("timeline")
    lines = live.page.locator(".timeline li")
    expect(lines).to_have_count(4)
    expect(lines.nth(0)).to_contain_text("restarting → deploying → running")
    expect(lines.nth(0)).to_contain_text("running for 2 min 16 s")
    expect(lines.nth(1)).to_contain_text("Attempt 1 failed: running → failing → restarting")
    expect(lines.nth(1)).to_contain_text("restarting for 2.0 s")
    expect(lines.nth(2)).to_contain_text("Savepoint 3: completed")
    expect(lines.nth(3)).to_contain_text("created → deploying → initialising → running")
    expect(live.page.get_by_text("no number in 'seven'")).to_have_count(1)


def test_a_failure_without_a_state_of_its_own_stands_alone(live: LivePage) -> None:
    other = FailureRecord(1, BEGAN + 5, FailureCause("lines[0]: its node is lost"))
    live.job.current = replace(live.job.current, failures=(other,))
    live.show("timeline")
    expect(live.page.locator(".timeline li")).to_have_count(5)
    expect(live.page.locator(".timeline")).to_contain_text("its node is lost")
