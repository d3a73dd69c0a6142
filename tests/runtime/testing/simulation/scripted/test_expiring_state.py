"""State with a TTL in a running job: the clean-up runs by itself."""

from __future__ import annotations

from simulated_jobs.scripted_job import ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, RuntimeContext
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.state.keyed_states import ValueState

COUNT = 3000


class Seen(KeyedProcessFunction[int, int, int]):
    """Each key comes once, so nothing but the clean-up ever looks at it again."""

    seen = ValueState(int, default=0, ttl=0.05)

    def process(self, value: int, ctx: RuntimeContext) -> list[int]:
        self.seen.update(1)
        return [value]


def test_keys_that_never_come_again_are_forgotten_while_the_job_runs() -> None:
    target, env = InMemoryCollector(), StreamEnvironment("expiring", parallelism=1)
    numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=COUNT, rate=3000.0))
    numbers.key_by(lambda n: n).process("seen", Seen()).sink("out", CollectSink(target))
    config = JobConfig(checkpointing=Checkpointing(every=1000), advanced=AdvancedConfig(buffer_rows=50))
    job = ScriptedJob(build_execution_graph(env.build()), config, MemoryStorage())
    most = 0

    def is_nearly_over() -> bool:
        nonlocal most
        tasks = [task for subtask, task in job.tasks.items() if subtask.vertex == "seen"]
        for _ in tasks:
            (backend,) = job.subtask("seen")._parts.backends.values()
            most = max(most, len(backend.table("seen").entries))
        return job.is_finished

    job.until(is_nearly_over, "the end of the job")
    assert sorted(target.rows()) == list(range(COUNT))
    assert 100 < most < COUNT / 3
