"""Sources of a group that wait for each other: none runs ahead, and all come to their end.

Reports and answers are delayed and overtake each other, answers are lost. Subtasks end, pause and restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from penstock import CollectionSource, WatermarkStrategy
from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.job.job_operators import AlignmentGroups
from penstock.runtime.operators.source_watermarks import (
    SourceAlignment,
    WatermarkReported,
    WatermarksAligned,
)
from penstock.runtime.snapshot.ids import SubtaskId

DRIFT = 10
STRATEGY = WatermarkStrategy.for_monotonous_timestamps().with_alignment("all", DRIFT / 1_000_000, interval=1)
SETTINGS = STRATEGY.alignment
assert SETTINGS is not None


@dataclass
class Member:
    """One subtask: how it reads its timestamps, and what is on its way to it and from it."""

    subtask: SubtaskId
    moments: list[int]
    read: int = 0
    is_idle: bool = False
    has_ended: bool = False
    reports: list[WatermarkReported] = field(default_factory=list)
    answers: list[WatermarksAligned] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        assert SETTINGS is not None
        self.reports, self.answers = [], []
        self.alignment = SourceAlignment(SETTINGS, lambda report: self.reports.append(report))
        self.has_ended = False

    @property
    def reached(self) -> int | None:
        return self.moments[self.read - 1] if self.read else None

    @property
    def is_paused(self) -> bool:
        return not self.is_idle and self.alignment.is_ahead(self.reached)

    def step(self) -> None:
        """Read one record, if it may."""
        if self.has_ended or self.is_idle or self.is_paused:
            return
        if self.read == len(self.moments):
            self.has_ended = True
            self.alignment.report(self.reached, counts=False)
            return
        self.read += 1
        if self.is_paused:
            self.alignment.advanced(self.reached)

    def tick(self, now: float) -> None:
        if not self.has_ended:
            self.alignment.tick(now, self.reached, counts=not self.is_idle)


class World:
    def __init__(self, inputs: list[list[int]]) -> None:
        ids = [SubtaskId("source", index) for index in range(len(inputs))]
        self.members = [Member(subtask, moments) for subtask, moments in zip(ids, inputs, strict=True)]
        spec = OperatorSpec("source", "source", None, CollectionSource(()), watermarks=STRATEGY)
        self.groups = AlignmentGroups([spec])
        self.now = 0.0

    def deliver(self, member: Member, which: int) -> None:
        """One report arrives, in any order; its answer is on its way."""
        if member.reports:
            report = member.reports.pop(which % len(member.reports))
            answer = self.groups.reported("source", member.subtask, report)
            assert answer is not None
            member.answers.append(answer)

    def answer(self, member: Member, which: int) -> None:
        if member.answers:
            member.alignment.aligned(member.answers.pop(which % len(member.answers)))

    def restart(self, member: Member, back: int) -> None:
        """It begins again somewhere before; what was on its way is of an older attempt."""
        member.read = max(0, member.read - back)
        member.is_idle = False
        member.start()
        self.groups.forget(member.subtask)

    def finish(self) -> int:
        """Let all go on fairly, and count the rounds until all have ended."""
        for rounds in range(400):
            if all(member.has_ended for member in self.members):
                return rounds
            self.now += 1
            for member in self.members:
                member.is_idle = False
                member.step()
                member.tick(self.now)
                while member.reports:
                    self.deliver(member, 0)
                while member.answers:
                    self.answer(member, 0)
        return -1


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "tick", "deliver", "answer", "lose", "idle", "restart"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=80,
)
INPUTS = st.lists(st.lists(st.integers(0, 100), max_size=12).map(sorted), min_size=1, max_size=3)


@given(inputs=INPUTS, actions=ACTIONS)
def test_all_come_to_their_end_whatever_was_lost_or_restarted(
    inputs: list[list[int]], actions: list[tuple[str, int, int]]
) -> None:
    world = World(inputs)
    for action, who, which in actions:
        member = world.members[who % len(world.members)]
        if action == "step":
            before, was_ahead = member.read, member.is_paused
            member.step()
            assert member.read == before or not was_ahead, "who is ahead reads nothing"
        elif action == "tick":
            world.now += 1
            for each in world.members:
                each.tick(world.now)
        elif action == "deliver":
            world.deliver(member, which)
        elif action == "answer":
            world.answer(member, which)
        elif action == "lose" and member.answers:
            del member.answers[which % len(member.answers)]
        elif action == "idle" and not member.has_ended:
            member.is_idle = not member.is_idle
        elif action == "restart":
            world.restart(member, which)
    assert world.finish() >= 0, "they wait for each other for ever"


@given(inputs=INPUTS)
def test_with_prompt_answers_nobody_reads_while_it_is_ahead_of_the_slowest_by_more_than_the_drift(
    inputs: list[list[int]],
) -> None:
    world = World(inputs)
    for _ in range(200):
        for member in world.members:
            world.now += 1
            for each in world.members:  # all answers are those to the latest state
                each.tick(world.now)
                while each.reports:
                    world.deliver(each, 0)
            for each in world.members:
                each.alignment.report(each.reached, counts=not each.has_ended)
                while each.reports:
                    world.deliver(each, 0)
                while each.answers:
                    world.answer(each, 0)
            going_on = [each.reached for each in world.members if not each.has_ended]
            before = member.reached
            read = member.read
            member.step()
            if member.read > read and before is not None:
                assert None not in going_on
                assert before <= min(each for each in going_on if each is not None) + DRIFT
    assert all(member.has_ended for member in world.members)
