"""Whole jobs with failures, each judged by an oracle that knows only the input: 50 seeds, 700 if long."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
from deep import SEEDS
from simulate import main, run_in_processes
from simulated_jobs.connected import ConnectedKind
from simulated_jobs.handover import StartFrom
from simulated_jobs.scenario import HandlerMode, draw_scenario
from simulated_jobs.shape import OperatorKind
from simulated_jobs.simulation import Summary, summarise
from simulated_jobs.timed import TimedKind

from penstock.runtime.checkpoint.channel_state_writer import AsyncChannelStateWriter
from penstock.runtime.testing.simulation.world.faults import FaultKind

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(1800)]

SEEDS_IN_A_PART = 50
PARTS = SEEDS // SEEDS_IN_A_PART
#: Number of parts that also run in the short version.
SHORT_PARTS = 1


@cache
def part(number: int) -> tuple[Summary, tuple[str, ...]]:
    """Some of the seeds; every part is run once, for whichever test comes first."""
    lines: list[str] = []
    first = number * SEEDS_IN_A_PART
    summary = summarise(run_in_processes(range(first, first + SEEDS_IN_A_PART), 1), lines.append)
    return summary, tuple(lines)


@pytest.mark.parametrize(
    "number", [pytest.param(n, marks=() if n < SHORT_PARTS else pytest.mark.long) for n in range(PARTS)]
)
def test_nothing_is_lost_and_nothing_counts_twice_whatever_fails(number: int) -> None:
    summary, lines = part(number)
    assert not summary.failed, "\n".join(lines)
    assert summary.passed == SEEDS_IN_A_PART


@pytest.mark.long
def test_every_kind_of_failure_has_really_happened(record_property: Callable[[str, object], None]) -> None:
    total = Summary()
    for number in range(PARTS):
        summary, _ = part(number)
        total.passed += summary.passed
        total.failed += summary.failed
        total.moves += summary.moves
        total.captured += summary.captured
        total.restored += summary.restored
        total.counts.update(summary.counts)
        total.kills.update(summary.kills)
    record_property("shown", "\n".join(total.lines()))
    assert total.missing_kinds == []
    assert total.captured > 1000
    assert total.restored > 100
    modes = {mode.value for mode in HandlerMode if mode is not HandlerMode.NO_CHECKPOINTS}
    counting = {f"{mode}, end_of_partition=counts_as_barrier" for mode in modes}
    aborting = {f"{mode}, end_of_partition=aborts" for mode in modes - {"at_least_once"}}
    assert {settings for settings, kills in total.kills.items() if kills >= 20} >= counting | aborting


def test_seeds_pick_every_mode_and_every_axis() -> None:
    scenarios = [draw_scenario(seed) for seed in range(SEEDS)]
    drawn = Counter(scenario.mode for scenario in scenarios)
    assert set(drawn) == set(HandlerMode)
    assert min(drawn.values()) > 20, drawn
    sources = [vertex for each in scenarios for vertex in each.shape.vertices if not vertex.inputs]
    assert {(source.is_on_request, source.has_hook) for source in sources} == {
        (on_request, hook) for on_request in (False, True) for hook in (False, True)
    }
    windows = [o for each in scenarios for o in each.shape.operators if o.kind is OperatorKind.WINDOW]
    assert len(windows) > 100
    assert len({(window.keys, window.length) for window in windows}) == 12
    columns = [each.shape.columns for each in scenarios if each.shape.columns is not None]
    assert len(columns) > 50
    assert {bool(each.least) for each in columns} == {False, True}
    assert {(each.combines, each.length) for each in columns} == {
        (c, n) for c in (False, True) for n in (0, 3, 8)
    }
    assert {each.at_source for each in columns if each.combines and each.length} == {False, True}
    timed = [each.shape.timed for each in scenarios if each.shape.timed is not None]
    assert len(timed) > 50
    assert {(each.kind, each.is_quiet_beside) for each in timed} == {
        (kind, quiet) for kind in TimedKind for quiet in (False, True)
    }
    assert {(bool(each.ttl), bool(each.drift)) for each in timed if each.kind is TimedKind.TTL} == {
        (by_clock, is_aligned) for by_clock in (False, True) for is_aligned in (False, True)
    }
    connected = [each.shape.connected for each in scenarios if each.shape.connected is not None]
    assert len(connected) > 50
    assert min(Counter(each.kind for each in connected).values()) > 10
    assert {each.kind for each in connected} == set(ConnectedKind)
    ways = Counter((each.second.start, bool(each.second.parallelism)) for each in scenarios if each.second)
    assert set(ways) == {(start, other) for start in StartFrom for other in (False, True)}
    planned = {fault.kind for each in scenarios for fault in each.faults}
    assert planned >= {FaultKind.RESCALED, FaultKind.STOPPED, FaultKind.DRAINED, FaultKind.HOOK_LATE}
    in_modes = {each.mode for each in scenarios for f in each.faults if f.kind is FaultKind.RESCALED}
    assert in_modes == set(HandlerMode) - {HandlerMode.NO_CHECKPOINTS}


def test_failing_seed_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(AsyncChannelStateWriter, "add_output", lambda *arguments: None)
    assert main(["--seeds", "15:25", "--processes", "1"]) == 1
    *lines, verdict = capsys.readouterr().out.splitlines()
    last = max(number for number, line in enumerate(lines) if "see it again: " in line)
    failure = lines[: last + 1]
    command = failure[-1].partition("see it again: ")[2]
    assert command.startswith("python tests/simulate.py --seed ")
    assert not verdict.endswith(" 0 failed")
    begins = max(number for number, line in enumerate(failure) if " FAILED after " in line)
    assert main(shlex.split(command)[2:]) == 1
    again = capsys.readouterr().out.splitlines()
    assert again[-len(failure[begins:]) :] == failure[begins:]
    assert any("steps" in line for line in again), "it shows what happened on the way"
