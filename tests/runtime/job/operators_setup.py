"""Master hooks and source coordinators in a job: the real scheduler; subtasks are recorded."""

from __future__ import annotations

from manual_work import ManualAsyncRunner
from prompt_runner import PromptRunner

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import DeploymentError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.execution_graph import CurrentGraph, build_execution_graph
from penstock.runtime.graph.job_graph import JobGraph, JobVertex, OperatorSpec
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.scheduler import JobScheduler
from penstock.runtime.operators.coordinator_host import EventOfCoordinator, EventOfSubtask
from penstock.runtime.operators.source_coordinator import SPLIT_REQUEST, OnRequest, OnRequestEnumerator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

READ = SubtaskId("read", 0)
CODEC = ValueCodec()


class Hook:
    def __init__(self, identifier="outside"):
        self.identifier, self.calls = identifier, []

    def trigger_checkpoint(self, checkpoint_id, timestamp):
        self.calls.append(("trigger", checkpoint_id))
        return {"offset": checkpoint_id}

    def restore_checkpoint(self, checkpoint_id, state):
        self.calls.append(("restore", checkpoint_id, state))

    def reset(self):
        self.calls.append(("reset",))

    def close(self):
        self.calls.append(("close",))


class Hooked(OnRequest):
    """A source with splits on request and a master hook."""

    def __init__(self, source, hook):
        super().__init__(source)
        self.hook = hook

    def master_hook(self):
        return self.hook


class Missing:
    """A source that is not there."""

    def splits(self, parallelism):
        raise FileNotFoundError("no such folder")

    def reader(self, context, splits):
        raise AssertionError("never deployed")


class Eager(OnRequest):
    """A source whose enumerator assigns all splits before anybody asks."""

    def __init__(self, *splits):
        super().__init__(CollectionSource(()))
        self.eager, self.closed = splits, 0

    def enumerator(self, context, state):
        return EagerEnumerator(self, context, state)


class EagerEnumerator(OnRequestEnumerator):
    def __init__(self, source, context, state):
        super().__init__(source, context, state or (True, source.eager))
        self.source = source

    def start(self):
        while self._unassigned:
            self._context.assign(0, [self._unassigned.popleft()])

    def close(self):
        self.source.closed += 1


class Cluster:
    """The job's gateway; events arrive at once, unless they are to be lost, or held on their way."""

    def __init__(self):
        self.said = []
        self.loses_events = self.holds_events = False
        self.held, self.stops = [], []

    def __getattr__(self, name):
        return lambda *args: self.said.append((name, *args))

    def stop(self, attempt, subtasks, stopped):
        self.said.append(("stop", attempt))
        self.stops.append(stopped)

    def stopped(self):
        """The oldest stop is over."""
        self.stops.pop(0)()

    def send_operator_event(self, attempt, subtask, operator_id, event, answer):
        self.said.append((attempt, subtask, event))
        if self.holds_events:
            self.held.append(answer)
        elif self.loses_events:
            answer.failed(DeploymentError("nobody is there"))
        else:
            answer.sent()

    def take(self):
        said, self.said = self.said, []
        return said


class Run:
    def __init__(
        self,
        *sources,
        parallelism=1,
        config=None,
        opened=None,
        hooks_hang=False,
        vertices=(),
        restore_from=None,
    ):
        vertices = vertices or tuple(
            JobVertex(name, (OperatorSpec(name, name, None, source=source, stateful=True),), parallelism)
            for name, source in zip(("read", "other"), sources, strict=False)
        )
        clock = ManualClock()
        self.timers, self.runner = ManualTimers(clock), PromptRunner()
        self.user_runner = ManualAsyncRunner() if hooks_hang else self.runner
        self.cluster, self.storage = Cluster(), MemoryStorage()
        self.subtasks = [SubtaskId(v.id, i) for v in vertices for i in range(parallelism)]
        self.scheduler = JobScheduler(
            "job",
            CurrentGraph(build_execution_graph(JobGraph("job", vertices, (), restore_from=restore_from))),
            config
            or JobConfig(checkpointing=Checkpointing(every=10), restart=FixedDelay(3, 1), failover="region"),
            self.cluster,
            None if config is not None else self.storage,
            clock,
            self.timers,
            self.runner,
            open_location=lambda url, create=False: opened,
            user_runner=self.user_runner,
        )

    def begin(self):
        self.scheduler.start()
        self.runner.run_all()
        self.run_attempt()
        return self

    def run_attempt(self):
        attempt = self.scheduler.attempt
        self.scheduler.on_deployed(attempt)
        self.scheduler.on_started(attempt)

    def checkpoint(self):
        answers = []
        self.scheduler.trigger_checkpoint(on_answer=answers.append)
        self.runner.run_all()
        self.acknowledge(self.scheduler.statistics().checkpoints.triggered)
        return answers[0].checkpoint

    def acknowledge(self, checkpoint_id):
        for subtask in self.subtasks:
            attempt = self.scheduler.attempt_of(subtask)
            snapshot = SubtaskSnapshot()
            self.scheduler.acknowledge(attempt, subtask, checkpoint_id, snapshot, CheckpointMetrics())
        self.runner.run_all()

    def files(self):
        """Files of checkpoints in the storage."""
        return [path for path in self.storage.list("job/") if "/log/" not in path]

    def fail(self, subtask):
        self.scheduler.on_subtask_failed(self.scheduler.attempt, subtask, FailureCause("killed", subtask))
        self.cluster.stopped()
        self.runner.run_all()
        self.timers.advance(2)
        self.runner.run_all()

    def ask(self, subtask, number):
        attempt = self.scheduler.attempt_of(subtask)
        self.cluster.take()
        self.scheduler.on_operator_event(attempt, subtask, subtask.vertex, request(number))
        return self.events()

    def events(self):
        """Events of coordinators that were sent since, each with the attempt that it is for."""
        said = [said for said in self.cluster.take() if isinstance(said[0], int)]
        return [(attempt, subtask, decoded(event)) for attempt, subtask, event in said]


def decoded(event):
    """The value of a coordinator's event; other events are their own."""
    return CODEC.loads(event.data) if isinstance(event, EventOfCoordinator) else event


def request(number):
    """The request of a reader."""
    return EventOfSubtask(number, CODEC.dumps(SPLIT_REQUEST))
