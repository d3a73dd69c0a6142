"""`JobOperators`: the parts of operators in the JobMaster, and their connection to the subtasks.

A source may have a master hook, which takes part in checkpoints. A source with an enumerator has a
coordinator, and a user's operator may have one. All are restored before the subtasks are deployed, and closed
at the end of the job. When a region restarts, its coordinators learn of the failed subtasks. Sources of an
alignment group need no coordinator of their own: `AlignmentGroups` answers their reports.

Hooks, enumerators and coordinators are users' code. Their errors must not be raised here: the scheduler would
be in an unknown state. An error of a hook in a checkpoint fails that checkpoint, and names the hook. Any
other error names the operator. While the job runs, it fails the attempt. At the end of the job, it is
reported with the end.

`EventLink` carries the events of one coordinator to its subtasks (Flink's `SubtaskGateway`). A subtask is
present from its start until it fails or its attempt ends. An event for an absent subtask waits: an enumerator
may assign splits before anything is deployed. When a subtask fails, its waiting events are dropped, because
the coordinator takes them back. An event that is lost on its way to a present subtask would be in no
snapshot. So the loss counts as a failure of that subtask, and the coordinator gets the subtask's splits back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.checkpoint.coordinator.starts import restore_masters
from penstock.runtime.checkpoint.master_hooks import BackgroundHook, MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.holder import EventCallbacks, OperatorCoordinatorHolder
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.errors import ConfigurationError, OperatorError, OperatorLocation, PenstockError
from penstock.runtime.graph.job_graph import JobVertex, OperatorSpec
from penstock.runtime.job.end_of_job import ClosingOperators
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.coordinator_host import (
    CoordinatorHost,
    EventOfCoordinator,
    UserCoordinatorProvider,
)
from penstock.runtime.operators.coordinators import (
    CoordinatorProvider,
    EventAnswer,
    HasMasterHook,
    OperatorCoordinator,
    OperatorCoordinatorContext,
)
from penstock.runtime.operators.source import EnumeratesSplits
from penstock.runtime.operators.source_coordinator import SourceCoordinatorProvider
from penstock.runtime.operators.source_watermarks import WatermarkReported, WatermarksAligned
from penstock.runtime.operators.user_code.failure import operator_error
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.time.watermarks import WatermarkAlignment

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext


#: Called for a lost event, with its subtask, the event and the error.
OnLost = Callable[[SubtaskId, EventOfCoordinator, BaseException], None]


class EventLink:
    """The `EventSender` of one operator; calls `on_lost` for an event that a present subtask did not get."""

    def __init__(self, job: JobContext, vertex: str, operator_id: str, on_lost: OnLost) -> None:
        self._job = job
        self._vertex = vertex
        self._operator_id = operator_id
        self._on_lost = on_lost
        self._present: set[int] = set()
        self._waiting: dict[int, deque[tuple[Any, EventAnswer]]] = {}

    def appear(self, subtask: int) -> None:
        self._present.add(subtask)

    def flush(self, subtask: int) -> None:
        while subtask in self._present and (waiting := self._waiting.get(subtask)):
            self._carry(subtask, *waiting.popleft())

    def vanish(self, subtask: int) -> None:
        self._present.discard(subtask)
        self._waiting.pop(subtask, None)

    def vanish_all(self) -> None:
        self._present.clear()
        self._waiting.clear()

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        if subtask in self._present and not self._waiting.get(subtask):
            self._carry(subtask, event, answer)
        else:
            self._waiting.setdefault(subtask, deque()).append((event, answer))

    def _carry(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        to = SubtaskId(self._vertex, subtask)
        attempt = self._job.planner.attempt_of(to)

        def failed(error: BaseException) -> None:
            # The subtask fails first: that aborts checkpoints, which must not complete without this event.
            if subtask in self._present and attempt == self._job.planner.attempt_of(to):
                self._on_lost(to, event, error)
            answer.failed(error)

        callbacks = EventCallbacks(answer.sent, failed)
        self._job.gateway.send_operator_event(attempt, to, self._operator_id, event, callbacks)


class AlignmentGroups:
    """The progress of the sources of each alignment group, from the reports of the running attempt.

    `operators/source_watermarks.py` describes how sources wait for each other. Snapshots don't contain this
    progress.

    Example:
        >>> from penstock import CollectionSource, WatermarkStrategy
        >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_alignment("all", max_drift=0.00001)
        >>> sources = [OperatorSpec(x, x, None, CollectionSource([]), watermarks=strategy) for x in "ab"]
        >>> groups, a, b = AlignmentGroups(sources), SubtaskId("a", 0), SubtaskId("b", 0)
        >>> groups.reported("a", a, WatermarkReported(1, 100, counts=True))
        WatermarksAligned(number=1, allowed=110)
        >>> groups.reported("b", b, WatermarkReported(1, 20, counts=True)).allowed
        30
    """

    def __init__(self, operators: Iterable[OperatorSpec]) -> None:
        self._of: dict[str, WatermarkAlignment] = {}
        for spec in operators:
            alignment = None if spec.watermarks is None else spec.watermarks.alignment
            if alignment is not None:
                self._of[spec.id] = alignment
        self._groups: dict[str, dict[SubtaskId, WatermarkReported]] = {}

    def reported(
        self, operator_id: str, subtask: SubtaskId, report: WatermarkReported
    ) -> WatermarksAligned | None:
        """Handle a report; return the answer, or `None` if the source is in no group."""
        alignment = self._of.get(operator_id)
        if alignment is None:
            return None
        group = self._groups.setdefault(alignment.group, {})
        known = group.get(subtask)
        if known is None or report.number > known.number:
            group[subtask] = report
        return WatermarksAligned(report.number, _allowed(group.values(), alignment.max_drift))

    def forget(self, subtask: SubtaskId) -> None:
        """Stop waiting for a subtask that has failed, until it reports again."""
        for group in self._groups.values():
            group.pop(subtask, None)

    def forget_all(self) -> None:
        self._groups.clear()


def _allowed(reports: Iterable[WatermarkReported], max_drift: int) -> int | None:
    reached = [report.reached for report in reports if report.counts]
    if not reached:
        return END_OF_TIME
    known = [time for time in reached if time is not None]
    return min(known) + max_drift if len(known) == len(reached) else None


@dataclass(frozen=True, slots=True)
class _JobHook:
    hook: BackgroundHook
    source: OperatorLocation

    def __str__(self) -> str:
        return f"{self.source}: master hook {self.hook.identifier!r}"

    def failure(self, what: str, error: BaseException) -> OperatorError:
        return operator_error(self.source, f"master hook {self.hook.identifier!r}: {what}", error)


class JobOperators:
    """Makes and drives the operator coordinators and master hooks of a job.

    Args:
        allow_non_restored: Whether state of coordinators and hooks that no longer exist may be dropped.

    Raises:
        ConfigurationError: A source's master hook can't be made, or its name is missing or taken.
    """

    def __init__(
        self,
        job: JobContext,
        codec: ValueCodec,
        *,
        allow_non_restored: bool = False,
    ) -> None:
        self._job = job
        self._allow_non_restored = allow_non_restored
        self._codec = codec
        graph = job.graph
        with_coordinator = {v.id: list(filter(_has_coordinator, v.operators)) for v in graph.job.vertices}
        #: By vertex, the operators of its chain that have a coordinator.
        self._specs = {vertex: specs for vertex, specs in with_coordinator.items() if specs}
        self._links: dict[str, EventLink] = {}
        self._alignment = AlignmentGroups(spec for vertex in graph.job.vertices for spec in vertex.operators)
        self.coordinators = OperatorCoordinators(
            self._holder(vertex, spec)
            for vertex in graph.job.vertices
            for spec in with_coordinator[vertex.id]
        )
        self.hooks = MasterHooks(codec)
        self._job_hooks: dict[str, _JobHook] = {}
        self._closer: ClosingOperators | None = None
        for vertex in graph.job.vertices:
            self._add_hook(vertex)

    def restore(
        self, checkpoint: CompletedCheckpoint | None, then: Callable[[FailureCause | None], None]
    ) -> None:
        """Restore coordinators and hooks for a whole job that starts from a checkpoint, or from nothing.

        `then` is called once: with the failure of the first hook that could not be restored, or with `None`
        when all hooks are restored.

        Raises:
            PenstockError: The checkpoint does not fit.
        """
        self.attempt_ended()  # drops events and reports that came while subtasks were being stopped
        restore_masters(
            self.hooks, self.coordinators, checkpoint, allow_non_restored=self._allow_non_restored
        )
        left = set(self._job_hooks)
        has_failed = False
        what = "reset" if checkpoint is None else f"restore_checkpoint({checkpoint.checkpoint_id})"

        def restored(job_hook: _JobHook, error: BaseException | None) -> None:
            nonlocal has_failed
            left.discard(job_hook.hook.identifier)
            if has_failed:
                return
            if error is not None:
                has_failed = True
                failure = job_hook.failure(what, error)
                recoverable = not isinstance(error, PenstockError)
                then(FailureCause.of_operator(failure, failure.cause_text, recoverable=recoverable))
            elif not left:
                then(None)

        if not left:
            then(None)
        for job_hook in self._job_hooks.values():
            job_hook.hook.when_restored(partial(restored, job_hook))

    @property
    def busy_hooks(self) -> tuple[str, ...]:
        return tuple(name for name, job_hook in self._job_hooks.items() if not job_hook.hook.is_restored)

    def start(self) -> None:
        self.coordinators.start()

    def handle_event(self, subtask: SubtaskId, operator_id: str, event: Any) -> None:
        """Handle an event of a subtask; ignores it when its operator has no coordinator."""
        if isinstance(event, WatermarkReported):
            self._align(subtask, operator_id, event)
        else:
            self.coordinators.handle_event(operator_id, subtask.index, event)

    def failed(self, subtasks: Iterable[SubtaskId], reason: str) -> None:
        for subtask in subtasks:
            self._alignment.forget(subtask)
            for spec in self._specs.get(subtask.vertex, ()):
                self._links[spec.id].vanish(subtask.index)
                self.coordinators.subtask_failed(spec.id, subtask.index, reason)

    def come_back(
        self, subtasks: Iterable[SubtaskId], checkpoint: CompletedCheckpoint | None
    ) -> FailureCause | None:
        """Prepare the coordinators of subtasks that restart from a checkpoint, or from nothing.

        All subtasks of an operator are restored together. A source's coordinator continues, and takes back
        the splits that its readers forget. Any other coordinator is restored from the checkpoint. Returns the
        cause if a coordinator could not be restored.
        """
        checkpoint_id = None if checkpoint is None else checkpoint.checkpoint_id
        operators = {} if checkpoint is None else checkpoint.operators
        specs: dict[str, OperatorSpec] = {}
        indexes: dict[str, list[int]] = {}
        for subtask in subtasks:
            self._alignment.forget(subtask)
            for spec in self._specs.get(subtask.vertex, ()):
                self._links[spec.id].vanish(subtask.index)
                specs[spec.id] = spec
                indexes.setdefault(spec.id, []).append(subtask.index)
        for spec in specs.values():
            try:
                if spec.source is None:
                    self.coordinators.reset_operator(spec.id, checkpoint_id, operators)
                else:
                    for index in indexes[spec.id]:
                        self.coordinators.subtask_reset(spec.id, index, checkpoint_id)
            except BaseException as error:  # a coordinator may raise anything
                return _not_restored(spec, checkpoint_id, error)
        return None

    def started(self, subtasks: Collection[SubtaskId]) -> None:
        """Send the waiting events to these started subtasks; later events are sent immediately."""
        for act in (EventLink.appear, EventLink.flush):
            for subtask in subtasks:
                for spec in self._specs.get(subtask.vertex, ()):
                    act(self._links[spec.id], subtask.index)

    def attempt_ended(self) -> None:
        """Send no more events to subtasks of this attempt; `restore` or the job's end follows."""
        self._alignment.forget_all()
        for link in self._links.values():
            link.vanish_all()

    def close(self, then: Callable[[str], None]) -> None:
        """Close coordinators and hooks at the job's end; calls `then` once, with all errors."""
        hooks = self._job_hooks.values()
        closer = self._closer = ClosingOperators(map(str, hooks), self._job.timers, then)
        self.coordinators.close()
        self.hooks.close()

        def closed(job_hook: _JobHook, error: BaseException | None) -> None:
            closer.closed(str(job_hook), "" if error is None else str(job_hook.failure("close", error)))

        for job_hook in hooks:
            job_hook.hook.when_closed(partial(closed, job_hook))
        closer.begin()

    def _align(self, subtask: SubtaskId, operator_id: str, report: WatermarkReported) -> None:
        """Answer a source of an alignment group; a lost answer does no harm."""
        answer = self._alignment.reported(operator_id, subtask, report)
        if answer is not None:
            attempt = self._job.planner.attempt_of(subtask)
            self._job.gateway.send_operator_event(attempt, subtask, operator_id, answer, _IGNORED)

    def _add_hook(self, vertex: JobVertex) -> None:
        spec = vertex.operators[0]
        if not isinstance(spec.source, HasMasterHook):
            return
        location = OperatorLocation(spec.id, None, vertex.parallelism, spec.defined_at)
        try:
            hook = BackgroundHook(spec.source.master_hook(), self._job.user_runner)
            is_new = self.hooks.add(hook)
        except BaseException as error:  # of the user's source, or because its hook has no name
            doing = f"master_hook() of source {type(spec.source).__name__}"
            raise ConfigurationError(str(operator_error(location, doing, error))) from error
        if not is_new:
            other = self._job_hooks[hook.identifier].source
            msg = (
                f"{location}: another source, {other}, has a master hook with the identifier "
                f"{hook.identifier!r}. Give each hook its own identifier: the hook's state is stored under it"
            )
            raise ConfigurationError(msg)
        self._job_hooks[hook.identifier] = _JobHook(hook, location)

    def _holder(self, vertex: JobVertex, spec: OperatorSpec) -> OperatorCoordinatorHolder:
        link = self._links[spec.id] = EventLink(self._job, vertex.id, spec.id, self._lost)
        return OperatorCoordinatorHolder(
            spec.id,
            lambda: self._job.graph.job.vertex(vertex.id).parallelism,
            partial(self._coordinator, vertex, spec),
            link,
            self._job.user_runner,
            self._fail_job,
            self._job.timers,
        )

    def _coordinator(
        self, vertex: JobVertex, spec: OperatorSpec, context: OperatorCoordinatorContext
    ) -> OperatorCoordinator:
        location = OperatorLocation(spec.id, None, vertex.parallelism, spec.defined_at)
        provider: CoordinatorProvider
        if isinstance(spec.source, EnumeratesSplits):
            provider = SourceCoordinatorProvider(spec.source, location)
        else:
            assert spec.coordinator is not None, f"{spec.id} has no coordinator"
            provider = UserCoordinatorProvider(spec.coordinator)
        return CoordinatorHost(provider, context, self._codec, location)

    def _fail_job(self, cause: str | PenstockError) -> None:
        """Fail the attempt, because a coordinator can't continue.

        An `OperatorError` in the first attempt allows no restart until a checkpoint is complete.
        """
        job = self._job
        if self._closer is not None:  # nothing is left to fail
            self._closer.failed(str(cause))
            return
        if not isinstance(cause, OperatorError):
            job.state.failed(FailureCause(str(cause)))
            return
        achieved = job.coordinator is not None and job.coordinator.latest_completed is not None
        is_first = job.attempt == 1 and not achieved
        job.state.failed(FailureCause.of_operator(cause, cause.cause_text, recoverable=not is_first))

    def _lost(self, subtask: SubtaskId, event: EventOfCoordinator, error: BaseException) -> None:
        """Fail the subtask that an event did not reach: its splits would be lost otherwise.

        A finished subtask needs only events that must arrive. While the job stops with a savepoint, it needs
        no events, because it has passed its barrier.
        """
        job = self._job
        if job.planner.status[subtask] is SubtaskStatus.FINISHED and (
            not event.must_arrive or job.state.name is JobState.STOPPING
        ):
            return
        msg = f"an event from its operator's coordinator did not reach the subtask: {error}"
        job.state.failed(FailureCause(msg, subtask))


def _nothing(*_: object) -> None: ...


_IGNORED: Final = EventCallbacks(_nothing, _nothing)


def _not_restored(spec: OperatorSpec, checkpoint_id: int | None, error: BaseException) -> FailureCause:
    location = OperatorLocation(spec.id, defined_at=spec.defined_at)
    if isinstance(error, PenstockError):
        text = str(error)
        return FailureCause(text if spec.id in text else f"{location}: {text}", recoverable=False)
    where = "the beginning" if checkpoint_id is None else f"checkpoint {checkpoint_id}"
    failure = operator_error(location, f"the reset of its coordinator to {where}", error)
    return FailureCause.of_operator(failure, failure.cause_text)


def _has_coordinator(spec: OperatorSpec) -> bool:
    return spec.coordinator is not None or isinstance(spec.source, EnumeratesSplits)
