"""`import penstock`: the names that users have, where they are defined, and what they cost."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import jedi
import pytest
from door import HOUSE, public_modules, public_values

import penstock
import penstock.cluster
import penstock.ray_data
import penstock.spark
import penstock.state
from penstock import testing

MODULES = public_modules()
ROOT = Path(__file__).resolve().parents[1]

#: Of a job that has ended; it asks no cluster before a call is checked.
HANDLE: Any = penstock.cluster.RayJobHandle("none", "none")

#: A program of a user, as a type checker and an editor see it.
PROGRAM = """\
from penstock import Checkpointing, DataStream, FileSink, FileSource, StreamEnvironment
from penstock.aggregates import Count, Sum
from penstock.windows import TumblingEventTimeWindows


def build(folder: str) -> StreamEnvironment:
    env = StreamEnvironment("orders", checkpointing=Checkpointing(every=5, storage=folder))
    orders: DataStream[dict[str, int]] = env.from_source("orders", FileSource.json(folder))
    totals = orders.key_by(lambda order: order["customer"]).reduce("totals", lambda one, two: {**one, **two})
    totals.sink("out", FileSink.json(folder))
    return env
"""


def mapped(stream: Any) -> Any:
    return stream.map(str)


def loaded_after(statement: str) -> set[str]:
    """The modules of Penstock that a fresh interpreter has after a statement."""
    show = "import sys; print(*[m for m in sys.modules if m.startswith('penstock')])"
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def type_errors(programs: dict[str, str], folder: Path) -> str:
    """The messages of a strict type checker about users' programs, by name."""
    for name, program in programs.items():
        (folder / name).write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file",
        "",
        "--cache-dir",
        str(folder),
        *programs,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout


def listed(module: ModuleType) -> list[tuple[str, str]]:
    """Module and name of everything that a public module lists."""
    (block,) = [node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.If)]
    found = []
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, "a re-export needs `as`"
            found.append((str(node.module), alias.name))
    return [(home, name) for home, name in found if name != "__version__"]


def public_methods(public: type) -> set[str]:
    """The names of its methods and properties, those of its bases in Penstock among them."""
    methods = (FunctionType, property, cached_property, classmethod, staticmethod)
    return {
        name
        for base in public.__mro__
        if base.__module__.startswith("penstock.")
        for name, value in vars(base).items()
        if isinstance(value, methods) and not name.startswith("_")
    }


def says_what_it_does(public: type, method: str) -> bool:
    return any(vars(base)[method].__doc__ for base in public.__mro__ if method in vars(base))


@pytest.mark.parametrize("name", public_values())
def test_every_public_name_says_what_it_is(name: str) -> None:
    assert public_values()[name].__doc__ or name == "penstock.operators.Batch"


@pytest.mark.parametrize("name", [name for name, value in public_values().items() if inspect.isclass(value)])
def test_every_public_method_says_what_it_does(name: str) -> None:
    """A method that overrides another one may leave it to that one's docstring; a test's name says it."""
    public = public_values()[name]
    assert isinstance(public, type)
    methods = {method for method in public_methods(public) if not method.startswith("test_")}
    assert [method for method in methods if not says_what_it_does(public, method)] == []


def test_the_front_door_has_the_names_that_a_program_needs_and_no_more() -> None:
    assert 50 <= len(penstock.__all__) <= 70


@pytest.mark.parametrize("module", MODULES)
def test_each_name_is_listed_once(module: ModuleType) -> None:
    assert sorted(name for _, name in listed(module)) == module.__all__
    assert len(set(module.__all__)) == len(module.__all__)


def test_each_name_is_public_in_one_module() -> None:
    """But `read_state` and `write_state`: with tables, and with DataFrames."""
    counted = Counter(name for module in MODULES for name in module.__all__)
    assert {name for name, count in counted.items() if count > 1} == {"read_state", "write_state"}


@pytest.mark.parametrize(
    ("module", "home", "name"), [(module, home, name) for module in MODULES for home, name in listed(module)]
)
def test_each_name_is_listed_where_it_is_defined(module: ModuleType, home: str, name: str) -> None:
    value = getattr(module, name)
    assert value.__module__ == home if inspect.isclass(value) or inspect.isfunction(value) else True
    assert getattr(importlib.import_module(home), name) is value


def test_no_module_hides_a_public_name() -> None:
    """Once a module is imported, its package has an attribute of that name."""
    beside = {path.stem for path in (ROOT / "src" / "penstock").iterdir()}
    assert not beside & set(penstock.__all__)


def test_nothing_but_the_public_modules_names_what_is_public() -> None:
    assert [name for name in HOUSE if vars(importlib.import_module(f"penstock.{name}")).get("__all__")] == []


@pytest.mark.parametrize(
    ("module", "misspelt", "meant"),
    [
        (penstock, "StreamEnviroment", "StreamEnvironment"),
        (penstock.cluster, "RayJobHandel", "RayJobHandle"),
        (penstock.spark, "from_sparks", "from_spark"),
        (testing, "simulat", "simulate"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(module: ModuleType, misspelt: str, meant: str) -> None:
    with pytest.raises(AttributeError, match=f"'{meant}'"):
        getattr(module, misspelt)


@pytest.mark.long
def test_a_strict_type_checker_accepts_a_program_and_finds_a_wrong_name_in_it(tmp_path: Path) -> None:
    wrong = PROGRAM.replace("StreamEnvironment\n", "StreamEnviroment\n", 1).replace("every=5", "evry=5")
    said = type_errors({"program.py": PROGRAM, "wrong.py": wrong}, tmp_path)
    *lines, found = said.splitlines()
    assert {line.partition(":")[0] for line in lines} == {"wrong.py"}, said
    assert found.endswith("in 1 file (checked 2 source files)"), said
    assert 'Module "penstock" has no attribute "StreamEnviroment"' in said
    assert 'Unexpected keyword argument "evry"' in said


def test_an_editor_completes_public_names_and_their_members() -> None:
    def offered(program: str) -> set[str]:
        return {found.name for found in jedi.Script(program).complete()}

    assert set(penstock.__all__) <= offered("import penstock\npenstock.")
    assert {"TumblingEventTimeWindows", "CountTrigger"} <= offered("from penstock.windows import ")
    assert {"from_source", "run"} <= offered(
        "from penstock import StreamEnvironment\nStreamEnvironment('a')."
    )


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: penstock.spark.spark_session("app", excutors=1), "executors"),
        (lambda: penstock.spark.SparkTable("/t", compresion="zstd"), "compression"),
        (lambda: penstock.spark.read_state("s", spark=None, operator="o", stat="x"), "state"),
        (lambda: penstock.spark.SparkTable.of(None, "t", compresion="zstd"), "compression"),
        (lambda: penstock.spark.SparkResults(schma=None), "schema"),
        (lambda: penstock.state.read_state("s", operatr="o"), "operator"),
        (lambda: penstock.job("j", storge="s"), "storage"),
        (lambda: HANDLE.savepoint(tiemout=1), "timeout"),
        (lambda: HANDLE.stop(drian=True), "drain"),
        (lambda: HANDLE.wait(progres=True), "progress"),
        (lambda: HANDLE.logs(operater="o"), "operator"),
        (lambda: HANDLE.log_reader(subtsk=1), "subtask"),
        (lambda: testing.simulate(dict, output=list, seed=[1]), "seeds"),
        (lambda: testing.OperatorHarness.of(mapped, paralelism=2), "parallelism"),
        (lambda: testing.OperatorHarness.of(mapped).push([1], timestamp=[1]), "timestamps"),
        (lambda: testing.SourceHarness(penstock.CollectionSource([1]), restord=()), "restored"),
        (lambda: testing.SourceHarness(penstock.CollectionSource([1])).poll(max_row=1), "max_rows"),
    ],
)
def test_a_misspelt_argument_is_answered_with_the_nearest(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(penstock.ConfigurationError, match=f"did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: penstock.spark.from_spark(penstock.StreamEnvironment(), None, windw=1), "window"),
        (lambda: penstock.spark.from_spark(penstock.StreamEnvironment(), None, paralelism=1), "parallelism"),
        (
            lambda: penstock.ray_data.from_ray_dataset(
                penstock.StreamEnvironment(), None, batch_fromat="rows"
            ),
            "batch_format",
        ),
        (
            lambda: penstock.spark.from_structured_streaming(None, None, checkpoint_loc="/c"),
            "checkpoint_location",
        ),
        (lambda: penstock.StreamEnvironment().run(timout=1), "timeout"),
        (lambda: penstock.StreamEnvironment().submit(restore="/s"), "restore_from"),
    ],
)
def test_a_misspelt_argument_names_the_line_of_the_program(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(penstock.GraphError, match=rf"test_public_names\.py:\d+ .* did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("look", "meant"),
    [
        (lambda: HANDLE.cancle, "cancel"),
        (lambda: testing.OperatorHarness.of(mapped).snapshots, "snapshot"),
        (lambda: testing.SourceHarness(penstock.CollectionSource([1])).pol, "poll"),
        (lambda: testing.SimulationReport(1, 1).failing_sed, "failing_seed"),
        (lambda: penstock.cluster.JobStatistics(penstock.JobStatus.RUNNING).restrats, "restarts"),
    ],
)
def test_a_misspelt_member_is_answered_with_the_nearest(look: Callable[[], object], meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        look()


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for package in HOUSE
        for file in (ROOT / package).rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_listed_for_completion(module: ModuleType) -> None:
    assert set(module.__all__) <= set(dir(module))


def test_importing_the_door_loads_nothing_behind_it() -> None:
    names = {module.__name__ for module in MODULES}
    loaded = loaded_after("import " + ", ".join(sorted(names)))
    behind = {f"penstock.runtime.{module}" for module in ("errors", "names", "redaction")}
    assert loaded == {*names, "penstock._public_names", "penstock.runtime", *behind}


def test_building_a_graph_loads_no_input_and_output() -> None:
    loaded = loaded_after("from penstock import StreamEnvironment; StreamEnvironment('a')")
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
    statement = "from penstock import FileSink; FileSink.json('/out'); import sys"
    loaded = loaded_after(f"{statement}; assert 'pyarrow.parquet' not in sys.modules")
    assert "penstock.runtime.io.connectors.files.file_sink" in loaded
    assert "penstock.runtime.io.connectors.files.file_source" not in loaded


def test_naming_streams_and_connectors_loads_no_pandas() -> None:
    """Modules of users do it in each process of their job, and pandas would take half a second."""
    imports = "from penstock import DataStream, FileSink, FileSource, StreamEnvironment; import sys"
    loaded = loaded_after(f"{imports}; assert not {{'pandas', 'pyarrow.dataset'}} & set(sys.modules)")
    assert "penstock.runtime.operators.expressions" in loaded
