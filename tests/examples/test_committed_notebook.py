"""The committed notebook: it has the results of a run, and nothing of the machine."""

from __future__ import annotations

import ast
import base64
import importlib
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from spark_notebook import NOTEBOOK, TEN_MINUTES, code_cells, curves, for_readers, graphs, outputs

#: What differs from machine to machine, or from run to run; and what would be found.
_OF_A_MACHINE = {
    "a path": (r"(?<![\w/:<.)])/\w[\w.@-]*/\w|~/|[A-Z]:\\", "wrote '/tmp/notebook-x/chk-1'"),
    "the address of a host": (r"\b\d{1,3}(\.\d{1,3}){3}\b|localhost", "at 127.0.0.1:8265"),
    "the address of an object": (r"\b0x[0-9a-f]{4,}", "<Smooth object at 0x7f12ab34>"),
    "a process": (r"\bpid\b", "(Smooth pid=4711)"),
    "the time of day": (r"\b\d{4}-\d\d-\d\d|\b\d\d:\d\d:\d\d", "12:00:01 WARN"),
    "how long it took": (r"\d ?(ms|s|min)\b", "finished | 4 s"),
}


@pytest.fixture(scope="module")
def notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


def shown(notebook: Any) -> str:
    """All that its outputs say."""
    return "\n".join(
        text
        for output in outputs(notebook)
        for kind, text in ({"": output.text} if output.output_type == "stream" else output.data).items()
        if kind != "image/png"  # letters at random
    )


def test_every_cell_was_executed_once_and_in_order(notebook: Any) -> None:
    nbformat.validate(notebook)
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    results = [output for output in outputs(notebook) if output.output_type == "execute_result"]
    of_cells = [cell.execution_count for cell in cells for o in cell.outputs if o in results]
    assert [output.execution_count for output in results] == of_cells


def test_it_shows_the_graph_of_the_job_and_pictures_of_results_and_of_state(notebook: Any) -> None:
    (graph,) = graphs(notebook)
    for operator in ("readings  source(SparkSource)", "smooth    process(Smooth)", "key_group by sensor_of"):
        assert operator in graph
    day, bars = map(base64.b64decode, curves(notebook))
    assert day.startswith(b"\x89PNG")
    assert len(day) > 10_000, "dots and a line"
    assert bars.startswith(b"\x89PNG")
    assert len(bars) > 3_000, "two bars for each sensor"
    assert "the second query has read a newer checkpoint: True" in shown(notebook)


def test_it_shows_tables_and_says_that_each_reading_was_there_once(notebook: Any) -> None:
    said = shown(notebook)
    assert "|-- smooth: double" in said
    assert "<th>readings</th>" in said
    assert re.search(r"[\d,]+ readings, each of them once", said)


@pytest.mark.parametrize("path", [NOTEBOOK, TEN_MINUTES], ids=lambda path: path.stem)
@pytest.mark.parametrize("what", _OF_A_MACHINE)
def test_it_shows_nothing_of_the_machine_or_of_the_run(path: Path, what: str) -> None:
    pattern, example = _OF_A_MACHINE[what]
    assert re.search(pattern, example)
    said = shown(nbformat.read(path, as_version=4))
    assert not re.findall(f".{{0,40}}(?:{pattern}).{{0,40}}", said)


@pytest.mark.parametrize("path", [NOTEBOOK, TEN_MINUTES], ids=lambda path: path.stem)
def test_it_imports_names_that_exist(path: Path) -> None:
    """A long run executes the notebooks."""
    program = "\n".join(cell.source for cell in code_cells(nbformat.read(path, as_version=4)))
    imports = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    ours = [node for node in imports if node.module is not None and node.module.startswith("penstock")]
    assert ours
    for node in ours:
        module = importlib.import_module(str(node.module))
        assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def test_the_ten_minutes_show_the_graph_a_curve_and_that_nothing_is_missing() -> None:
    notebook = nbformat.read(TEN_MINUTES, as_version=4)
    nbformat.validate(notebook)
    found = [output.get("data", {}) for output in outputs(notebook)]
    (graph,) = (data["text/html"] for data in found if "<svg" in data.get("text/html", ""))
    assert "by-sensor" in graph
    assert len([data for data in found if "image/png" in data]) == 1
    assert re.search(r"20,000 readings, each of them once", shown(notebook))


def test_it_shows_no_errors_and_no_logs(notebook: Any) -> None:
    kinds = {output.get("name", output.output_type) for output in outputs(notebook)}
    assert kinds == {"stdout", "execute_result", "display_data"}
    assert {json.dumps(cell.metadata) for cell in notebook.cells} == {"{}"}, "nothing of when it ran"


def test_what_is_for_nobody_who_reads_is_left_out() -> None:
    v4 = nbformat.v4
    said = [v4.new_output("stream", name=f"std{to}", text=to) for to in ("out", "err", "out")]
    cell = v4.new_code_cell(metadata={"execution": {"iopub.status.idle": "now"}}, outputs=said)
    left = for_readers(
        v4.new_notebook(cells=[cell], metadata={"language_info": {"name": "python", "version": "3"}})
    )
    assert [output.text for output in left.cells[0].outputs] == ["outout"]
    assert left.cells[0].metadata == {}
    assert left.metadata.language_info == {"name": "python"}
