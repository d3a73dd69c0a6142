"""The JobMaster dies around the answers of several hooks: each restores what the checkpoint has of it."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from outside import (
    AFTER,
    AT_RECORD,
    BEFORE,
    BEHIND_RECORD,
    DURING,
    HookedNumbers,
    Outside,
    RecordedStorage,
)
from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector

MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.001},
    "at least once": {"mode": "at_least_once"},
}
PLACES = (BEFORE, DURING, AFTER, AT_RECORD, BEHIND_RECORD)
HOOKS = ("left", "right")
COUNT, SEEDS, KILLS = 400, 5, 5


class Run:
    """A job with two hooks, and the kills of its JobMaster."""

    def __init__(self, seed: int, mode: dict[str, Any]) -> None:
        self.outside, self.out = Outside(), InMemoryCollector()
        env = StreamEnvironment("hooks", parallelism=2)
        for name in HOOKS:
            source = env.from_source(name, HookedNumbers(range(COUNT), name, self.outside))
            named = source.rebalance().map(lambda n, name=name: (name, n), id=f"named-{name}")
            named.sink(f"out-{name}", CollectSink(self.out))
        config = JobConfig(
            checkpointing=Checkpointing(every=1, **mode), advanced=AdvancedConfig(buffer_rows=10, credits=2)
        )
        graph = build_execution_graph(env.build())
        self.job = ScriptedJob(graph, config, RecordedStorage(self.outside), seed)
        self._kill_at: tuple[str, str] | None = None
        self.outside.strike = self._strike

    def _strike(self, place: str, hook: str) -> None:
        if self._kill_at == (place, hook):
            self._kill_at = None
            self.outside.deaths += 1
            self.job.kill_master()

    def kill(self, place: str, hook: str) -> None:
        """Take a checkpoint, and kill the JobMaster at a place of it."""
        deaths = self.outside.deaths
        if place == AFTER:
            self.job.trigger_checkpoint()
            self._kill_at = (place, hook)
            self._strike(place, hook)
        else:
            self._kill_at = place, hook if place in (BEFORE, DURING) else ""
            self.job.scheduler.trigger_checkpoint()
            self.job.until(lambda: self.outside.deaths > deaths, f"a death {place}")
        self.job.until_it_runs()

    def restored(self) -> dict[str, tuple[int | None, Any]]:
        """States that each hook of the newest JobMaster was asked to restore, once each."""
        newest = self.outside.asked[-len(HOOKS) :]
        assert sorted(hook for hook, *_ in newest) == sorted(HOOKS)
        return {hook: (checkpoint_id, state) for hook, checkpoint_id, state in newest}

    def expected(self, completed: int | None) -> dict[str, tuple[int | None, Any]]:
        """The states of each hook for a checkpoint: an id that is complete is never asked for again."""
        if completed is None:
            return dict.fromkeys(HOOKS, (None, None))
        return {hook: (completed, self.outside.given[hook, completed][-1]) for hook in HOOKS}


def run_with_kills(seed: int, mode: dict[str, Any], counts: Counter[str]) -> None:
    draws, run = Random(seed), Run(seed, mode)
    completed: int | None = None
    for _ in range(KILLS):
        run.job.run(draws.randrange(40))
        place, hook = draws.choice(PLACES), draws.choice(HOOKS)
        before = run.outside.deaths
        run.kill(place, hook)
        counts[place] += run.outside.deaths - before
        restored = run.job.scheduler.statistics().restored_checkpoint
        if place == BEHIND_RECORD:
            assert restored is not None
            assert completed is None or restored > completed, "the record was written"
        else:
            assert restored == completed, "the checkpoint has never been"
        assert run.restored() == run.expected(restored)
        completed = restored
        if draws.random() < 0.5:
            completed = run.job.complete_checkpoint()
    run.outside.has_ended = True
    run.job.finish()
    assert sorted(run.outside.closed) == sorted(HOOKS), "the last JobMaster closes its hooks, once each"
    found = {hook: {n for name, n in run.out.rows() if name == hook} for hook in HOOKS}
    assert found == {hook: set(range(COUNT)) for hook in HOOKS}
    if mode.get("mode") != "at_least_once":
        assert len(run.out.rows()) == len(HOOKS) * COUNT


@pytest.mark.parametrize("mode", MODES)
def test_hooks_get_back_what_they_gave_wherever_the_job_master_dies(mode: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        run_with_kills(seed, MODES[mode], counts)
    print(f"{mode}: {counts.total()} kills of the JobMaster: {dict(counts)}")
    assert counts.total() >= 20
    assert set(counts) == set(PLACES), "every place was met"
