"""Stateful master hooks on a real cluster: what a hook gave for a checkpoint is what it restores.

The system outside is a database file. The hooks live in the JobMaster, which is killed around their answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from jobs.driving import eventually, finish, submit, wait_until
from jobs.oracle import committed_rows
from jobs.outside import (
    AT_RECORD,
    BEFORE,
    BEHIND_RECORD,
    DURING,
    FAIL,
    HANG,
    KILL,
    Decisions,
    Hooked,
    Outside,
)
from jobs.words import NEVER, environment, lines, paced_lines

from penstock import FileSink, FixedDelay
from penstock.cluster import JobReport, RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

HOOKS = ("left", "right")
PLACES = (BEFORE, DURING, AT_RECORD, BEHIND_RECORD)
COUNT = 300
MODES = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "at least once": {"mode": "at_least_once"},
}


def hooked_job(tmp_path: Path, outside: Path, **checkpointing: object) -> RayJobHandle:
    """Two word counts with a hook each; they do not end before the file `go` is there."""
    env = environment(
        tmp_path,
        every=0.25,
        retain=1_000,
        keep_after="always",
        tolerable_failures=1_000,
        restart=FixedDelay(attempts=100, delay=0.1),
        **checkpointing,
    )
    for hook in HOOKS:
        source = paced_lines(COUNT, 3_000.0, attempt=NEVER, release=tmp_path / "go")
        lines_of = env.from_source(hook, Hooked(source, hook, str(outside)))
        lines_of.map(str.upper, id=f"upper-{hook}").sink(f"out-{hook}", FileSink.json(tmp_path / hook))
    return submit(env)


def strike(job: RayJobHandle, outside: Outside, place: str, draws: Random) -> int:
    """Kill the JobMaster at a place of a checkpoint, and wait for the next attempt; the checkpoint's id."""
    attempt = job.report().statistics.attempt
    hook = draws.choice(HOOKS) if place in (BEFORE, DURING) else ""
    order = outside.order(KILL, hook, place)
    eventually(f"a death {place}", lambda: outside.done(order) is not None)
    wait_until(job, "the next attempt", lambda r: r.statistics.attempt > attempt)
    after = job.report().statistics.completed_checkpoints
    wait_until(job, "a checkpoint", lambda r: r.statistics.completed_checkpoints > after)
    struck = outside.done(order)
    assert struck is not None
    return struck


def assert_restored_what_was_given(outside: Outside, tmp_path: Path, job: RayJobHandle) -> int:
    """Each attempt restored each hook once, from the position given for its checkpoint; how many began."""
    restored = Decisions.of(tmp_path / "checkpoints", job.job_id).restored
    for hook in HOOKS:
        given: dict[int | None, int | None] = {None: None}
        for checkpoint_id, position in outside.rows(
            "SELECT checkpoint_id, position FROM given WHERE hook = ?", hook
        ):
            assert checkpoint_id not in given, f"id {checkpoint_id} was given twice"
            given[checkpoint_id] = position
        asked = outside.rows("SELECT checkpoint_id, position FROM asked WHERE hook = ? ORDER BY n", hook)
        assert asked == [(checkpoint_id, given[checkpoint_id]) for checkpoint_id in restored]
    return len(restored)


def strike_at(places: list[str], job: RayJobHandle, outside: Outside, draws: Random) -> dict[str, int]:
    """Kill the JobMaster at each place, in an order that is drawn; the checkpoint of each."""
    draws.shuffle(places)
    return {place: strike(job, outside, place, draws) for place in places}


def assert_recorded_only_behind(struck: dict[str, int], tmp_path: Path, job: RayJobHandle) -> None:
    """A checkpoint is complete exactly if the JobMaster died behind its record."""
    completed = Decisions.of(tmp_path / "checkpoints", job.job_id).completed
    for place, checkpoint_id in struck.items():
        assert (checkpoint_id in completed) is (place == BEHIND_RECORD)


def assert_all_is_there(tmp_path: Path, mode: str = "aligned") -> None:
    """Every line was put out, and once unless the mode is at least once."""
    for hook in HOOKS:
        rows = committed_rows(tmp_path / hook)
        assert set(rows) == set(map(str.upper, lines(COUNT)))
        assert mode == "at least once" or len(rows) == COUNT


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("mode", MODES)
def test_hooks_restore_what_they_gave_after_many_kills(
    tmp_path: Path, mode: str, record_property: Callable[[str, object], None]
) -> None:
    """Each place is struck by a kill of its own, in an order that the seed decides."""
    counts = Counter[str]()
    for seed in range(5):
        folder = tmp_path / str(seed)
        folder.mkdir()
        draws, outside = Random(seed), Outside.created(folder / "outside.db")
        job = hooked_job(folder, folder / "outside.db", **MODES[mode])
        wait_until(job, "a checkpoint", lambda r: r.statistics.completed_checkpoints >= 1)
        struck = strike_at([*PLACES], job, outside, draws)
        (folder / "go").touch()
        finish(job)

        assert assert_restored_what_was_given(outside, folder, job) == len(PLACES) + 1
        assert_recorded_only_behind(struck, folder, job)
        assert_all_is_there(folder, mode)
        counts.update(struck.keys())
    record_property("shown", f"{mode}: {counts.total()} kills of the JobMaster: {dict(counts)}")


def test_a_hook_that_fails_or_hangs_costs_checkpoints_and_all_restore_what_they_gave_when_the_job_master_dies(
    tmp_path: Path,
) -> None:
    """The late answer counts for none. The JobMaster dies in an answer, and behind all of them."""
    draws = Random(14)
    outside = Outside.created(tmp_path / "outside.db")
    failing = outside.order(FAIL, "left", DURING)
    job = hooked_job(tmp_path, tmp_path / "outside.db", timeout=1.0)
    eventually("a hook that fails", lambda: outside.done(failing) is not None)
    # Hooks answer side by side: a later checkpoint is the one that hangs.
    wait_until(job, "a checkpoint behind it", lambda r: r.statistics.completed_checkpoints >= 1)
    hanging = outside.order(HANG, "right", DURING)
    eventually("a hook that hangs", lambda: outside.done(hanging) is not None)
    failed, late = outside.done(failing), outside.done(hanging)

    def detail(report: JobReport, checkpoint_id: int | None) -> str:
        # Several may have it: one whose place could not be written in time has not taken its id.
        return " ".join(r.detail for r in report.checkpoint_history if r.checkpoint_id == checkpoint_id)

    expired = wait_until(
        job, "a checkpoint that waited in vain", lambda r: "the master hook right" in detail(r, late)
    )
    outside.release(hanging)
    before = expired.statistics.completed_checkpoints
    wait_until(job, "later checkpoints", lambda r: r.statistics.completed_checkpoints >= before + 2)
    places = [draws.choice((BEFORE, DURING)), draws.choice((AT_RECORD, BEHIND_RECORD))]
    struck = strike_at(places, job, outside, draws)
    (tmp_path / "go").touch()
    result = finish(job)

    assert "the master hook 'left' failed: ConnectionError: left has no answer" in detail(expired, failed)
    assert assert_restored_what_was_given(outside, tmp_path, job) == 3
    assert_recorded_only_behind(struck, tmp_path, job)
    assert not {failed, late} & set(Decisions.of(tmp_path / "checkpoints", job.job_id).completed)
    assert result.statistics.restarts == 2
    assert_all_is_there(tmp_path)
    for hook in HOOKS:
        closed = outside.rows("SELECT 1 FROM flags WHERE name LIKE ?", f"closed {hook} %")
        assert len(closed) == 1, "the last JobMaster has closed it"
