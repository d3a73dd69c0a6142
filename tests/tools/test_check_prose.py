"""The checker of prose finds what it is made for, and leaves alone what only looks like it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

if str(TOOLS) not in sys.path:
    sys.path.append(str(TOOLS))

prose = importlib.import_module("check_prose")


def found_in(tmp_path: Path, name: str, text: str, limit: int = 5) -> list[tuple[int, str]]:
    (tmp_path / name).write_text(text)
    return [(finding.line, finding.rule) for finding in prose.check(tmp_path, [name], limit)]


LONG = "One two three four five six."


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"Short one.\n\n{LONG}\n", [3]),
        (f"- An item.\n- {LONG}\n", [2]),
        (f"| cell | {LONG} |\n", [1]),
        ("One two three.\nFour five six.\n", []),
        ("One two three\nfour five six.\n", [1]),
        ("One two `three. four five` six.\n", []),
        ("One [two three](https://a/b) four `x y` six.\n", [1]),
        (f"```text\n{LONG}\n```\nShort.\n", []),
        ("One two, e.g. Three four five.\n", [1]),
        ("# One two three four five six\n", []),
        ("One * two three 4. four five six.\n", [1]),
        ("one two   three four\nfive six   seven\n", []),
    ],
)
def test_sentences_of_documents_are_counted(text: str, lines: list[int], tmp_path: Path) -> None:
    assert found_in(tmp_path, "a.md", text) == [(line, "long-sentence") for line in lines]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (f'"""{LONG}"""\n', [1]),
        (f'"""Short.\n\n{LONG}\n"""\n', [3]),
        (f"x = 1  # {LONG}\n", [1]),
        ("# One two three\n# four five six.\n", [1]),
        ("x = 1  # One two three\ny = 2  # four five six\n", []),
        (f'x = "{LONG}"\n', []),
        (
            '"""Short.\n\nExample:\n    >>> one(two)\n    one two three four five six\n"""\n',
            [],
        ),
        ('"""Such::\n\n    one two three four five six\n\nEnd.\n"""\n', []),
        ("#!one two three four five six\n# type: one two three four five six\n", []),
    ],
)
def test_sentences_of_docstrings_and_comments_are_counted(
    source: str, lines: list[int], tmp_path: Path
) -> None:
    assert found_in(tmp_path, "a.py", source) == [(line, "long-sentence") for line in lines]


def function(name: str, signature: str, entry: str) -> str:
    return f'def {name}({signature}):\n    """Do.\n\n    Args:\n        {entry}\n    """\n\n\n'


@pytest.mark.parametrize(
    ("signature", "entry", "is_empty"),
    [
        ("job_id: str", "job_id: The job.", True),
        ("graph: JobGraph", "graph: Of the job.", True),
        ("graph: JobGraph", "graph: Validated.", False),
        ("timeout: float", "timeout: Seconds.", False),
        ("mode: str", "mode: A `mode`.", False),
    ],
)
def test_a_description_without_a_word_of_its_own_is_found(
    signature: str, entry: str, is_empty: bool, tmp_path: Path
) -> None:
    found = found_in(tmp_path, "a.py", function("run", signature, entry), limit=25)
    assert found == ([(5, "repeats-signature")] if is_empty else [])


def test_fields_of_classes_are_looked_at_too(tmp_path: Path) -> None:
    source = 'class A:\n    """Do.\n\n    Attributes:\n        rows: The rows.\n    """\n\n    rows: int\n'
    assert found_in(tmp_path, "a.py", source) == [(5, "repeats-signature")]


def test_a_private_docstring_that_says_its_name_again_is_found(tmp_path: Path) -> None:
    function = 'def {}close_file(file):\n    """Close the file."""\n\n\n'
    source = function.format("_") + function.format("")
    assert found_in(tmp_path, "a.py", source) == [(2, "repeats-signature")]


@pytest.mark.parametrize(
    ("entry", "is_boilerplate"),
    [
        ("clock: Time.", True),
        ("clock: Monotonic seconds.", False),
        ("clock: See `Clock`.", False),
        ("clock: Given by the test that runs the job.", False),
    ],
)
def test_the_same_few_words_in_many_docstrings_are_found(
    entry: str, is_boilerplate: bool, tmp_path: Path
) -> None:
    thrice = "".join(function(f"f{number}", "clock", entry) for number in range(3))
    assert found_in(tmp_path, "a.py", thrice, limit=25) == []
    found = found_in(tmp_path, "a.py", thrice + function("f3", "clock", entry), limit=25)
    assert {rule for _, rule in found} == ({"repeated-argument"} if is_boilerplate else set())
    assert len(found) == (4 if is_boilerplate else 0)


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('"""It tells nobody."""\n', [1]),
        ('"""The job goes on."""\n', [1]),
        ('"""They were told."""\n', [1]),
        ("# Somebody waits.\n", [1]),
        ('"""Whoever asks, goes on."""\n', [1, 1]),
        ('"""What it takes."""\n', [1]),
        ('"""Its size.\n\nWhen it ends.\n"""\n', []),
        ('"""How many are there?"""\n', []),
        ('"""Whether it ended."""\n', []),
        ('"""The name `nobody` is code."""\n', []),
    ],
)
def test_habits_are_found(source: str, lines: list[int], tmp_path: Path) -> None:
    assert found_in(tmp_path, "a.py", source, limit=25) == [(line, "habit") for line in lines]


def test_habits_are_found_in_documents(tmp_path: Path) -> None:
    assert found_in(tmp_path, "a.md", "What opens a page.\n\nNobody knows.\n") == [(3, "habit")]


def test_findings_are_counted_by_folder_and_altogether() -> None:
    found = [prose.Finding(f"a/{name}.py", 1, "long-sentence", "x") for name in "bcd"]
    *_, last = prose.counts_by_folder(found).splitlines()
    assert last.split()[:2] == ["all", "3"]


def test_findings_count_where_the_prose_is_clean_and_nowhere_else() -> None:
    found = [
        prose.Finding("a/b.py", 1, "long-sentence", "x"),
        prose.Finding("c/d.py", 2, "long-sentence", "y"),
    ]
    assert prose.strict_problems(found, ["a", "c/d.py"]) == []
    assert prose.strict_problems(found, ["a"]) == ["c/d.py:2: long-sentence: y"]


def test_the_list_of_what_is_not_clean_only_gets_shorter() -> None:
    found = [prose.Finding("a/b.py", 1, "long-sentence", "x")]
    [problem] = prose.strict_problems(found, ["a", "c"])
    assert problem.startswith("c is clean")


@pytest.mark.long  # `make lint` asks the same each time
def test_the_prose_of_the_project_is_as_clean_as_its_list_says() -> None:
    done = subprocess.run(
        [sys.executable, TOOLS / "check_prose.py", "--strict"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
