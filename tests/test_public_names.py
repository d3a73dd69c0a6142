"""The packages export their public names, lazily."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock.actors as actors
import penstock.bridge as bridge
import penstock.runtime as runtime
import penstock.runtime.testing as testing

PACKAGES = [runtime, testing, actors, bridge]

#: Of a job that has ended; it asks no cluster before a call is checked.
HANDLE: Any = actors.RayJobHandle("none", "none")


def mapped(stream: Any) -> Any:
    return stream.map(str)


def loaded_after(statement: str) -> set[str]:
    """The modules of Penstock that a fresh interpreter has after a statement."""
    show = "import sys; print(*[m for m in sys.modules if m.startswith('penstock')])"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def listed(package: ModuleType) -> list[tuple[str, str]]:
    """Module and name of everything in the package's stub."""
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    found = []
    for node in stub.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "a re-export needs `as`"
            found.append((f"{package.__name__}.{node.module}", alias.name))
    return found


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__]
)
def test_every_public_name_can_be_imported(package: ModuleType, name: str) -> None:
    assert getattr(package, name).__doc__ or name == "Batch"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_listed_once(package: ModuleType) -> None:
    assert sorted(name for _, name in listed(package)) == package.__all__
    assert len(set(package.__all__)) == len(package.__all__)


@pytest.mark.parametrize(
    ("package", "module", "name"), [(p, module, name) for p in PACKAGES for module, name in listed(p)]
)
def test_each_name_is_listed_where_it_is_defined(package: ModuleType, module: str, name: str) -> None:
    value = getattr(package, name)
    assert value.__module__ == module if inspect.isclass(value) or inspect.isfunction(value) else True
    assert getattr(importlib.import_module(module), name) is value


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_hides_a_public_name(package: ModuleType) -> None:
    """Once a module is imported, its package has an attribute of that name."""
    within = Path(package.__file__).parent
    assert not {path.stem for path in within.iterdir()} & set(package.__all__)


@pytest.mark.parametrize(
    ("package", "misspelt", "meant"),
    [
        (runtime, "StreamEnviroment", "StreamEnvironment"),
        (actors, "RayJobHandel", "RayJobHandle"),
        (bridge, "from_sparks", "from_spark"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(package: ModuleType, misspelt: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"'{meant}'"):
        getattr(package, misspelt)


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: bridge.spark_session("app", excutors=1), "executors"),
        (lambda: bridge.SparkTable("/t", compresion="zstd"), "compression"),
        (lambda: bridge.read_state("s", spark=None, operator="o", stat="x"), "state"),
        (lambda: bridge.SparkTable.of(None, "t", compresion="zstd"), "compression"),
        (lambda: bridge.SparkResults(schma=None), "schema"),
        (lambda: runtime.read_state("s", operatr="o"), "operator"),
        (lambda: actors.job("j", storge="s"), "storage"),
        (lambda: HANDLE.savepoint(tiemout=1), "timeout"),
        (lambda: HANDLE.stop(drian=True), "drain"),
        (lambda: HANDLE.wait(progres=True), "progress"),
        (lambda: HANDLE.logs(operater="o"), "operator"),
        (lambda: HANDLE.log_reader(subtsk=1), "subtask"),
        (lambda: testing.simulate(dict, output=list, seed=[1]), "seeds"),
        (lambda: testing.OperatorHarness.of(mapped, paralelism=2), "parallelism"),
        (lambda: testing.OperatorHarness.of(mapped).push([1], timestamp=[1]), "timestamps"),
        (lambda: testing.SourceHarness(runtime.CollectionSource([1]), restord=()), "restored"),
        (lambda: testing.SourceHarness(runtime.CollectionSource([1])).poll(max_row=1), "max_rows"),
    ],
)
def test_a_misspelt_argument_is_answered_with_the_nearest(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(runtime.ConfigurationError, match=f"did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: bridge.from_spark(runtime.StreamEnvironment(), None, windw=1), "window"),
        (lambda: bridge.from_spark(runtime.StreamEnvironment(), None, paralelism=1), "parallelism"),
        (lambda: bridge.from_ray_dataset(runtime.StreamEnvironment(), None, fromat="rows"), "format"),
        (lambda: bridge.from_structured_streaming(None, None, checkpoint_loc="/c"), "checkpoint_location"),
        (lambda: runtime.StreamEnvironment().run(timout=1), "timeout"),
        (lambda: runtime.StreamEnvironment().submit(restore="/s"), "restore_from"),
    ],
)
def test_a_misspelt_argument_names_the_line_of_the_program(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(runtime.GraphError, match=rf"test_public_names\.py:\d+ .* did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("look", "meant"),
    [
        (lambda: HANDLE.cancle, "cancel"),
        (lambda: testing.OperatorHarness.of(mapped).snapshots, "snapshot"),
        (lambda: testing.SourceHarness(runtime.CollectionSource([1])).pol, "poll"),
        (lambda: testing.SimulationReport(1, 1).failing_sed, "failing_seed"),
        (lambda: runtime.JobStatistics(runtime.JobStatus.RUNNING).restrats, "restarts"),
    ],
)
def test_a_misspelt_member_is_answered_with_the_nearest(look: Callable[[], object], meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        look()


def test_no_two_classes_have_one_name() -> None:
    root = Path(__file__).resolve().parents[1]
    names = Counter(
        node.name
        for package in ("runtime", "actors", "bridge")
        for file in (root / package).rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_listed_for_completion(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))


def test_importing_a_package_loads_none_of_its_parts() -> None:
    loaded = loaded_after("import penstock.actors; import penstock.bridge")
    names = {f"penstock.runtime.{module}" for module in ("errors", "misspelt_names", "redaction")}
    assert loaded == {"penstock", "penstock.actors", "penstock.bridge", "penstock.runtime", *names}


def test_building_a_graph_loads_no_input_and_output() -> None:
    loaded = loaded_after("from penstock.runtime import StreamEnvironment; StreamEnvironment('a')")
    assert "penstock.runtime.graph.streams.stream_environment" in loaded
    assert not [name for name in loaded if name.startswith("penstock.runtime.io")]


def test_a_handle_of_a_job_master_loads_nothing_of_what_the_job_master_does() -> None:
    """Ray loads an actor's class where its handle comes to; each subtask has this one."""
    loaded = loaded_after("import penstock.actors.master.job_master")
    its_own = {"penstock.actors.master", "penstock.actors.master.job_master"}
    assert loaded == {*its_own, *loaded_after("import penstock.actors")}


def test_a_handle_of_a_subtask_loads_nothing_that_runs_one() -> None:
    loaded = loaded_after("import penstock.actors.subtask.subtask_actor")
    assert "penstock.runtime.task.descriptor" in loaded
    running = {
        "penstock.actors.subtask.attempt",
        "penstock.runtime.task.subtask",
        "penstock.runtime.io.storage",
    }
    assert not running & loaded


def test_a_sink_of_json_loads_no_source_and_no_parquet() -> None:
    statement = "from penstock.runtime import FileSink; FileSink.json('/out'); import sys"
    loaded = loaded_after(f"{statement}; assert 'pyarrow.parquet' not in sys.modules")
    assert "penstock.runtime.io.connectors.files.file_sink" in loaded
    assert "penstock.runtime.io.connectors.files.file_source" not in loaded


def test_naming_streams_and_connectors_loads_no_pandas() -> None:
    """Modules of users do it in each process of their job, and pandas would take half a second."""
    imports = "from penstock.runtime import DataStream, FileSink, FileSource, StreamEnvironment; import sys"
    loaded = loaded_after(f"{imports}; assert not {{'pandas', 'pyarrow.dataset'}} & set(sys.modules)")
    assert "penstock.runtime.operators.expressions.expressions" in loaded
