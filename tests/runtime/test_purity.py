"""The pure part of the runtime: what it imports, what it calls, and under which name it is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "runtime"

#: What pure code may import. A module that is not here reaches the outside, or was not considered yet.
ALLOWED = frozenset(
    """
    __future__ abc bisect collections collections.abc contextlib copy dataclasses datetime decimal
    difflib enum fractions functools graphlib heapq inspect itertools json math operator re reprlib string
    numbers struct types typing unicodedata uuid zlib zoneinfo msgpack numpy numpy.typing pyarrow
    pyarrow.compute pyarrow.types xxhash
    """.split()  # noqa: SIM905
)

#: Files that need more, each with its reason.
ALSO_ALLOWED = {
    # finds the installed executor; escapes the text of a result, and quotes its command
    "runtime/graph/executor.py": {"html", "importlib.metadata", "shlex"},
    "runtime/graph/drawing.py": {"html", "statistics"},  # escapes text; medians
    # shows rows in the program that builds the graph: prints them, or makes a DataFrame
    "runtime/graph/streams/stream.py": {"importlib.util", "pandas", "print"},
    "runtime/testing/harness_state.py": {"importlib"},  # loads real backends for jobs that ask for them
    "runtime/operators/user_code/failure.py": {"traceback"},  # finds the user's line in the traceback
    "runtime/config/checks.py": {"os"},  # a path becomes text
    "runtime/error_text.py": {"traceback"},  # an error becomes text, with its traceback
    "runtime/operators/user_code/only_reads.py": {"builtins", "dis"},  # reads the code of users' functions
    "runtime/state/own_copy.py": {
        "array",
        "gc",
        "sys",
        "sysconfig",
        "weakref",
    },  # counts references
    "runtime/trust/data.py": {"io"},  # fills bytes in their place
    "runtime/trust/paths.py": {"fnmatch"},  # turns a pattern into a regular expression
    "runtime/state/text_column.py": {"weakref"},  # keeps no column of a cleared table
    "runtime/state/immutable_values.py": {"array"},  # knows its values
    "runtime/state/dirty_entries.py": {"gc"},  # collects young objects before they are many
    "runtime/state/heap_backend.py": {"gc"},  # collects restored objects once
    "runtime/cycle_collector.py": {"gc"},  # turns it off for a while
    # compiles the code of a loop, of names that are its own; finds the failing line
    "runtime/operators/functions/fused_loop.py": {"exec", "dis"},
    "runtime/record/row_columns.py": {"eval"},  # compiles the literal of a row, of names that are quoted
    # finds the user's class of a decoded value; pickles what has no codec of its own
    "runtime/record/record_classes.py": {"importlib", "io", "pickle", "sys"},
    # finds calls of clocks and of randomness in the code of users' functions
    "runtime/testing/simulation/run/uncontrolled.py": {"dis"},
    # copies users' objects for each process, as the cluster does
    "runtime/testing/simulation/run/user_job.py": {"io", "pickle"},
    # runs on the event loop of its owner, in the loop's time
    "runtime/operators/functions/async_call.py": {"asyncio", "contextvars", "tenacity"},
    # an event loop without clock and sockets
    "runtime/testing/manual_event_loop.py": {"asyncio"},
    "runtime/testing/simulation/cluster/process_resources.py": {"asyncio"},
    # warn of what is probably a mistake
    "runtime/operators/event_time.py": {"logging"},
    "runtime/record/column_names.py": {"logging"},
    # tests that users inherit: they have fixtures, and get folders for their worlds
    "runtime/testing/connectors/connector_tests.py": {"pathlib", "pytest"},
    "runtime/testing/connectors/outside.py": {"pathlib", "pytest"},
    # A job reads the lag in a thread, and waits for real systems.
    "runtime/testing/connectors/source_job.py": {"concurrent.futures", "time"},
    "runtime/testing/connectors/worlds.py": {"pytest"},
    "runtime/testing/connectors/sink_tests.py": {"logging", "pytest"},
    "runtime/testing/connectors/source_test_base.py": {"pytest"},
    "runtime/testing/connectors/source_tests.py": {"logging", "pytest"},
    "runtime/testing/connectors/split_tests.py": {"pytest"},
    "runtime/operators/aggregation/count_distinct.py": {"datasketches"},  # computes, and nothing else
}

#: Calls that reach the outside through a module that may be imported, and built-ins that do.
FORBIDDEN = frozenset(
    """
    open print input breakpoint exec eval __import__ io.open
    datetime.datetime.now datetime.datetime.utcnow datetime.datetime.today datetime.date.today
    uuid.uuid1 uuid.uuid4 uuid.getnode
    numpy.random numpy.load numpy.save numpy.savez numpy.fromfile numpy.memmap numpy.loadtxt numpy.savetxt
    pyarrow.fs pyarrow.OSFile pyarrow.memory_map pyarrow.parquet pyarrow.csv pyarrow.flight pyarrow.dataset
    """.split()  # noqa: SIM905
)


def pure_files() -> list[Path]:
    return [p for p in sorted(RUNTIME.rglob("*.py")) if p.relative_to(RUNTIME).parts[0] != "io"]


def imported(tree: ast.AST) -> Iterator[tuple[int, str, str | None, str]]:
    """Line, module, name taken from it (if any) and the local name, for every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                yield node.lineno, alias.name, None, local
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                yield node.lineno, module, alias.name, alias.asname or alias.name


def import_violation(module: str, name: str | None, also: set[str]) -> str | None:
    if module.startswith("."):
        return "imports relatively; write the full name"
    full = f"{module}.{name}" if name is not None else module
    if module == "penstock" or module.startswith("penstock."):
        if not full.startswith("penstock.runtime.") or module == "penstock.runtime":
            return f"imports {full}; pure code imports modules of penstock.runtime by their own names"
        return f"imports {full} from io" if f"{full}.".startswith("penstock.runtime.io.") else None
    return None if module in ALLOWED or module in also else f"imports {module}"


def violations(source: str, also: set[str] | None = None) -> list[str]:
    tree = ast.parse(source)
    found, origins = [], {}
    for line, module, name, local in imported(tree):
        whole = module if local != module.split(".")[0] else local
        origins[local] = whole if name is None else f"{module}.{name}"
        problem = import_violation(module, name, also or set())
        if problem is not None:
            found.append(f"{line}: {problem}")
        if origins[local] in FORBIDDEN:
            found.append(f"{line}: imports {origins[local]}")
    for node in (n for n in ast.walk(tree) if isinstance(n, ast.expr)):
        called = dotted(node, origins)
        if called in FORBIDDEN - (also or set()):
            found.append(f"{node.lineno}: uses {called}")
    return found


def dotted(node: ast.AST, origins: dict[str, str]) -> str | None:
    """The full name of what an expression reads, as far as its imports tell."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, origins)
        return f"{base}.{node.attr}" if base is not None else None
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return origins.get(node.id, node.id)
    return None


@pytest.mark.parametrize("file", pure_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_pure_files_reach_nothing_outside(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    assert violations(file.read_text(), ALSO_ALLOWED.get(name)) == []


def test_the_walk_sees_the_runtime() -> None:
    names = {p.relative_to(RUNTIME).as_posix() for p in pure_files()}
    assert {
        "errors.py",
        "graph/streams/stream_environment.py",
        "operators/functions/record_functions.py",
    } <= names
    assert not any(name.startswith("io/") for name in names)


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "import os.path",
        "from random import Random",
        "import threading as t",
        "import ray",
        "from pyspark.sql import DataFrame",
        "import pyarrow.parquet as pq",
        "import pyarrow as pa\npa.memory_map('x')",
        "import numpy as np\nnp.random.default_rng()",
        "from datetime import datetime\ndatetime.now()",
        "from datetime import datetime as D\nfirst = D.utcnow",
        "import datetime as dt\ndt.date.today()",
        "from uuid import uuid4",
        "import uuid\nuuid.uuid1()",
        "open('x')",
        "def f():\n    print(1)",
        "def f():\n    import socket",
        "from . import x",
        "from penstock.runtime.io.connectors import file_source",
        "from penstock.runtime import io",
        "from penstock import FileSource",
        "import penstock.runtime",
        "from penstock.actors.client.executor import RayExecutor",
        "__import__('time')",
    ],
)
def test_impure_code_is_found(source: str) -> None:
    assert violations(source)


@pytest.mark.parametrize(
    "source",
    [
        "clock.now()",
        "self.open(context)",
        "from datetime import datetime\ndatetime.fromisoformat('2020-01-01')",
        "import pyarrow as pa\npa.array([1])",
        "from penstock.runtime.errors import GraphError",
    ],
)
def test_pure_code_passes(source: str) -> None:
    assert violations(source) == []


TOP_LEVEL = ("runtime", "actors", "bridge")
FOLDERS = (*TOP_LEVEL, "examples", "benchmarks", "tests", "docs")


def test_nobody_imports_a_top_level_folder_under_its_bare_name() -> None:
    """With the repository's root on the path it would load a second copy of every class."""
    names_one = re.compile(rf"^\s*(?:from|import)\b.*(?<![.\w])(?:{'|'.join(TOP_LEVEL)})\b", re.MULTILINE)
    found = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text()
            if not names_one.search(text):  # parsing each file would take fifteen seconds
                continue
            for line, module, _, _ in imported(ast.parse(text)):
                if module.split(".")[0] in TOP_LEVEL:
                    found.append(f"{file.relative_to(ROOT)}:{line} imports {module}")
    assert found == []


def test_no_text_tells_users_to_import_a_bare_name() -> None:
    bare = re.compile(rf"^\s*(>>> )?(from|import) ({'|'.join(TOP_LEVEL)})\b", re.MULTILINE)
    texts = [
        p
        for folder in (".", *FOLDERS)
        for p in ((ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
    ]
    found = [f"{p.relative_to(ROOT)}: {m[0].strip()}" for p in texts for m in bare.finditer(p.read_text())]
    assert found == []
