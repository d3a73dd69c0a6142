"""Readers and the JobMaster die around the marks of a journal: checkpoints are taken at their own marks only.

Each round writes more into the journal and asks for a checkpoint, whose marks are behind it. One of the two
readers is held back, so that they meet the mark at different times. At some moment of it a reader or the
JobMaster dies, or the checkpoint is aborted. Its marks stay in the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest
from marked_journal import PARTS, Journal, JournalHook, JournalSource
from simulated_jobs.scripted_job import ScriptedJob
from strict_collector import StrictCollector

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import decode_atoms, read_state
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.simulation.world.world import SimulatedUserError

MODES: dict[str, dict[str, Any]] = {
    "aligned": {},
    "unaligned": {"unaligned": True},
    "aligned with a timeout": {"unaligned": True, "aligned_timeout": 0.001},
    "at least once": {"mode": "at_least_once"},
}
MARKED: Final = "the marks are written, and the sources were not asked"
BEFORE_REQUEST: Final = "both readers have met the mark before the request"
FIRST_MET: Final = "one reader has met the mark"
BOTH_MET: Final = "both have met the mark"
COMPLETE: Final = "the checkpoint is complete"
MOMENTS = (MARKED, BEFORE_REQUEST, FIRST_MET, BOTH_MET, COMPLETE)
READERS = ("reader 0", "reader 1")
SEEDS, ROUNDS = 6, 6


class DeadlyHook(JournalHook):
    """Tells when its marks are written; with a JobMaster that has died it does nothing any more."""

    def __init__(self, journal: Journal, run: Run) -> None:
        super().__init__(journal)
        self._run, self._born = run, run.deaths

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> dict[str, Any]:
        self._live()
        state = super().trigger_checkpoint(checkpoint_id, timestamp)
        self._run.given[checkpoint_id] = state
        self._run.marked(checkpoint_id)
        self._live()
        return state

    def restore_checkpoint(self, checkpoint_id: int, state: Any) -> None:
        self._live()
        super().restore_checkpoint(checkpoint_id, state)

    def _live(self) -> None:
        if self._run.deaths != self._born:
            msg = "its process is dead"
            raise SimulatedUserError(msg)


class DeadlySource(JournalSource):
    """Makes a hook for each JobMaster."""

    def __init__(self, journal: Journal, run: Run) -> None:
        super().__init__(journal, JournalHook(journal))
        self._run = run

    def master_hook(self) -> JournalHook:
        self._run.hook = DeadlyHook(self._run.journal, self._run)
        return self._run.hook


class Run:
    """A job that reads the journal.

    Attributes:
        given: What the hook gave for each checkpoint; an id is never given twice.
        marked: Called when the marks of a checkpoint are written.
        deaths: JobMasters that have died.
    """

    def __init__(self, seed: int, mode: dict[str, Any]) -> None:
        self.journal, self.deaths = Journal(), 0
        self.given: dict[int, dict[str, Any]] = {}
        self.marked: Callable[[int], None] = lambda checkpoint_id: None
        self.hook: JournalHook | None = None
        self.out: StrictCollector[int, int] = StrictCollector()
        env = StreamEnvironment("journal")
        source = env.from_source("numbers", DeadlySource(self.journal, self), parallelism=PARTS)
        source.rebalance().map(lambda pair: pair, id="pass", parallelism=2).sink(
            "out", CollectSink(self.out), parallelism=1
        )
        config = JobConfig(
            checkpointing=Checkpointing(every=1, **mode), advanced=AdvancedConfig(buffer_rows=4, credits=2)
        )
        self.job = ScriptedJob(build_execution_graph(env.build()), config, MemoryStorage(), seed)

    def kill(self, victim: str) -> None:
        """A process dies."""
        if victim == "JobMaster":
            self.deaths += 1
            self.job.kill_master()
        else:
            self.job.crash(killed=SubtaskId("numbers", READERS.index(victim)))

    def met(self, checkpoint_id: int) -> set[int]:
        """The parts whose readers have met a mark."""
        return {part for part, mark in self.journal.met if mark == checkpoint_id}

    def check_restored(self) -> int | None:
        """The hook was asked to restore what it gave for the checkpoint that the job has restored."""
        assert self.hook is not None
        restored = self.job.scheduler.statistics().restored_checkpoint
        last = next(call for call in reversed(self.hook.calls) if call[0] in ("restore", "reset"))
        assert last == (("reset",) if restored is None else ("restore", restored, self.given[restored]))
        return restored

    def check_newest(self) -> None:
        """The newest checkpoint was taken at its own marks: the readers, the hook and the output agree."""
        checkpoint = self.job.newest
        assert checkpoint is not None
        given = self.given[checkpoint.checkpoint_id]
        positions = {}
        for subtask in checkpoint.operators["numbers"].subtasks.values():
            [handle] = subtask.operator
            for atom in decode_atoms(read_state(self.job.storage, handle.state), "splits"):
                part, position, _ = ValueCodec().loads(atom)
                positions[part] = position
        assert [positions[part] for part in range(PARTS)] == given["cut"]
        assert [ValueCodec().loads(state.data) for state in checkpoint.master_states] == [given]


def strike(run: Run, draws: Random, moment: str, victim: str) -> bool:
    """Bring a checkpoint to a moment and kill there; whether a process died."""
    held, job = draws.randrange(PARTS), run.job
    attempt = job.scheduler.attempt
    begun: list[int] = []
    answers: list[Any] = []

    def marked(checkpoint_id: int) -> None:
        begun.append(checkpoint_id)
        if moment == MARKED and victim == "JobMaster":
            run.kill(victim)
        elif moment == BEFORE_REQUEST:
            job.delay_answer(1.0)

    run.marked = marked
    run.journal.held = held if moment == FIRST_MET else None
    job.scheduler.trigger_checkpoint(on_answer=answers.append)
    job.until(lambda: bool(begun), "the marks")
    [checkpoint_id] = begun
    if moment == BEFORE_REQUEST:
        job.until(lambda: len(run.met(checkpoint_id)) == PARTS, moment)
        assert checkpoint_id not in job.running
    elif moment == BOTH_MET:
        job.until(lambda: len(run.met(checkpoint_id)) == PARTS, moment)
        job.until(lambda: bool(answers) or checkpoint_id in job.running, "the request")
    elif moment == FIRST_MET:
        job.until(lambda: bool(run.met(checkpoint_id)), moment)
        assert run.met(checkpoint_id) == {1 - held}, "the other one is held"
    elif moment == COMPLETE:
        job.until(lambda: bool(answers), moment)
    if victim == "abort":
        if moment != COMPLETE:
            job.until(lambda: bool(answers) or checkpoint_id in job.running, "the request")
            job.give_up_checkpoint(checkpoint_id)
    elif not (moment == MARKED and victim == "JobMaster"):
        run.kill(victim)
    run.marked = lambda checkpoint_id: None
    job.until_it_runs()
    run.journal.held = None
    assert (job.scheduler.attempt > attempt) is (victim != "abort"), "it is another attempt after a death"
    return victim != "abort"


def run_with_kills(seed: int, mode: dict[str, Any], counts: Counter[str]) -> None:
    draws, run = Random(seed), Run(seed, mode)
    for _ in range(ROUNDS):
        run.journal.write(draws.randrange(30), draws.randrange(30))
        run.job.run(draws.randrange(100))
        moment = draws.choice(MOMENTS)
        victim = draws.choice((*READERS, "JobMaster", "JobMaster", "abort"))
        counts[f"{victim}, {moment}"] += 1
        counts["kills"] += strike(run, draws, moment, victim)
        if victim != "abort":
            run.check_restored()
        run.journal.write(draws.randrange(9), draws.randrange(9))
        run.job.complete_checkpoint()
        run.check_newest()
    run.journal.has_ended = True
    run.job.finish()
    expected = dict(enumerate(run.journal.parts))
    found = {part: sorted(numbers) for part, numbers in run.out.by_key().items()}
    if mode.get("mode") == "at_least_once":
        found = {part: sorted(set(numbers)) for part, numbers in found.items()}
    assert found == {part: numbers for part, numbers in expected.items() if numbers}


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_begin_at_their_marks_whoever_dies_around_them(mode: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        run_with_kills(seed, MODES[mode], counts)
    kills = counts.pop("kills")
    print(f"{mode}: {kills} kills and {counts.total() - kills} aborts: {dict(counts)}")
    assert kills >= 20
    for what in (*MOMENTS, *READERS, "JobMaster", "abort"):
        assert any(what in place for place in counts), f"never: {what}"
