"""Jobs that are pickled for their JobMaster, and the errors of those that can't be."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from typing import NoReturn

import pytest
import ray.cloudpickle as cloudpickle

from penstock import CollectSink, DiscardSink, StreamEnvironment
from penstock.actors.shared.graph_shipping import pack_job, unpack_job
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import DeploymentError, GraphError
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector


def graph(function: object = abs, key: object = abs, sink: object = None) -> JobGraph:
    env = StreamEnvironment("ship")
    stream = env.from_collection("numbers", [1, 2]).map(function)  # type: ignore[arg-type]
    stream.key_by(key).reduce("sum", max).sink("out", sink or DiscardSink())  # type: ignore[arg-type]
    return env.build()


def test_a_job_arrives_as_it_was_sent() -> None:
    config = JobConfig(advanced=AdvancedConfig(credits=3))
    job, arrived = unpack_job(tuple(pack_job(graph(), config)))
    assert arrived == config
    assert [v.id for v in job.vertices] == [v.id for v in graph().vertices]
    assert job.vertices[0].operators[1].factory is not None


def test_every_chunk_is_small_enough_for_ray_to_inline_it() -> None:
    text = "x" * 1_000_000
    chunks = pack_job(graph(lambda n: len(text) + n), JobConfig())
    assert len(chunks) > 10
    assert max(map(len, chunks)) < 100_000


def test_a_function_that_holds_a_lock_is_named_with_its_operator_and_line() -> None:
    lock = threading.Lock()

    def guarded(n: int) -> int:
        with lock:
            return n

    with pytest.raises(GraphError) as caught:
        pack_job(graph(guarded), JobConfig())
    message = str(caught.value)
    assert "map(guarded)" in message
    assert "test_graph_shipping.py" in message
    assert "lock" in message


def test_an_error_of_a_key_function_names_the_keyed_operator() -> None:
    lock = threading.Lock()
    with pytest.raises(GraphError, match=r"operator 'sum'.*lock"):
        pack_job(graph(key=lambda n: (lock, n)[1]), JobConfig())


def test_a_job_that_carries_data_is_refused_with_advice() -> None:
    data = bytes(20_000_000)
    with pytest.raises(GraphError, match=r"20\.\d MB when pickled.*Read the data in the source"):
        pack_job(graph(lambda n: data[n]), JobConfig())


def test_a_collector_of_this_process_is_refused_with_the_right_one() -> None:
    with pytest.raises(GraphError, match=r"operator 'out'.*RayCollector"):
        pack_job(graph(sink=CollectSink(InMemoryCollector())), JobConfig())


class OnNoCluster(InMemoryCollector):
    """Its cluster can't be started."""

    tries = 0

    def __reduce__(self) -> NoReturn:
        OnNoCluster.tries += 1
        raise DeploymentError("the new Ray node ended")


def test_a_cluster_that_does_not_start_is_tried_once_and_named_as_the_cause() -> None:
    with pytest.raises(DeploymentError, match=r"^the new Ray node ended$"):
        pack_job(graph(sink=CollectSink(OnNoCluster())), JobConfig())
    assert OnNoCluster.tries == 1


def test_a_module_that_the_cluster_does_not_have_is_named() -> None:
    # The pickle of a function whose module is only on the driver's path.
    missing = b"cmodule_of_the_driver_only\nfunction\n."
    with pytest.raises(ModuleNotFoundError):
        pickle.loads(missing)
    with pytest.raises(GraphError, match=r"module_of_the_driver_only.*--working-dir"):
        unpack_job((missing,))


def test_classes_are_pickled_together_with_the_functions_that_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    exec("class Record:\n    pass\ndef make(n):\n    return Record()\n", namespace)
    record = namespace["Record"]
    monkeypatch.setattr("penstock.actors.shared.graph_shipping.main_classes", lambda: (record,))
    data = b"".join(pack_job(graph(namespace["make"]), JobConfig()))
    # Another process does not know the class or its tracker: remove them here before unpickling.
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
    job, _ = unpack_job((data,))
    factory = job.vertices[0].operators[1].factory
    assert factory is not None
    (made,) = job.classes
    assert made is not record
    assert type(factory.args[0](1)) is made  # type: ignore[attr-defined]


def test_the_graph_that_the_user_holds_is_not_changed() -> None:
    job = graph()
    pack_job(job, JobConfig())
    assert job.classes == ()
    assert replace(job) == job
