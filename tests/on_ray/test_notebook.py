"""A job built, run and looked at in the cells of a notebook, by a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = (
    """
    from penstock import Checkpointing, FileSink, StreamEnvironment
    import glob, json

    def initial(word):
        return word[0], 1
    """,
    """
    env = StreamEnvironment("cells", checkpointing=Checkpointing(every=0.5, storage=FOLDER + "/checkpoints"))
    words = env.from_collection("words", ["ant", "bee", "ape", "asp", "bat"])
    counts = words.map(initial).key_by(lambda pair: pair[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
    counts.map(lambda pair: {"letter": pair[0], "count": pair[1]}).sink("out", FileSink.json(FOLDER + "/out"))
    result = env.run()
    """,
    """
    lines = [line for name in glob.glob(FOLDER + "/out/part-*") for line in open(name)]
    print(sorted((json.loads(line)["letter"], json.loads(line)["count"]) for line in lines))
    """,
    "import ray; ray.shutdown()",
)


def test_a_job_runs_from_the_cells_of_a_notebook(
    tmp_path: Path, ray_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_environment["RAY_ADDRESS"])
    folder = f"FOLDER = {str(tmp_path)!r}"
    sources = [folder, *("\n".join(line[4:] for line in cell.split("\n")) for cell in CELLS)]
    sources[-1] = CELLS[-1]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(s) for s in sources])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    printed = "".join(output.get("text", "") for output in notebook.cells[-2].outputs)
    assert printed.strip() == "[('a', 1), ('a', 2), ('a', 3), ('b', 1), ('b', 2)]"


def test_a_handle_is_a_card_that_follows_its_job(
    tmp_path: Path, ray_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_environment["RAY_ADDRESS"])
    cells = (
        "from penstock import DiscardSink, GeneratorSource, StreamEnvironment",
        "env = StreamEnvironment('<b>card</b>')\n"
        "numbers = env.from_source('numbers', GeneratorSource(lambda i: i, count=3_000, rate=1_000))\n"
        "numbers.sink('out', DiscardSink())\n"
        "job = env.submit()",
        "job",
        "import threading\n"
        "job.wait()\n"
        "[thread.join() for thread in threading.enumerate() if thread.name == 'job card'];",
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(tmp_path))
    (card,) = notebook.cells[2].outputs
    assert "&lt;b&gt;card&lt;/b&gt;" in card.data["text/html"]
    assert "finished" in card.data["text/html"]
    assert "finished" in card.data["text/plain"]
