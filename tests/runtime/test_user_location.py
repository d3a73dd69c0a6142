from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.runtime.user_location import function_location, function_name, user_location

HERE = "tests/runtime/test_user_location.py"


def split_words(line: str) -> list[str]:
    return line.split()


class Doubler:
    def __call__(self, value: int) -> int:
        return 2 * value

    def double(self, value: int) -> int:
        return 2 * value


def run_as(filename: str, module: str, source: str, **names: Any) -> dict[str, Any]:
    """Run source as if it stood in this file of this module."""
    namespace = {"__name__": module, **names}
    exec(compile(source, filename, "exec"), namespace)
    return namespace


def line_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


def test_the_location_is_the_line_that_asks() -> None:
    location = user_location()
    assert str(location).startswith(HERE)
    assert location.line == line_of(test_the_location_is_the_line_that_asks) + 1
    assert location.function == "test_the_location_is_the_line_that_asks"


def test_frames_of_penstock_are_skipped() -> None:
    inner = run_as("inner.py", "penstock.runtime.some", "def f(): return locate()", locate=user_location)
    assert user_location().file == HERE
    assert inner["f"]().file == HERE


def test_a_module_whose_name_only_begins_alike_is_the_users() -> None:
    user = run_as("/x/penstock_jobs.py", "penstock_jobs", "here = locate()", locate=user_location)
    assert str(user["here"]) == "penstock_jobs.py:1 in main program"


@pytest.mark.parametrize(
    ("filename", "module", "shown"),
    [
        ("/home/me/job.py", "__main__", "job.py"),
        ("/home/me/project/jobs/words.py", "jobs.words", "jobs/words.py"),
        ("/home/me/project/jobs/__init__.py", "jobs", "jobs/__init__.py"),
        ("C:\\me\\jobs\\words.py", "jobs.words", "jobs/words.py"),
        ("<stdin>", "__main__", "<stdin>"),
        ("/tmp/ipykernel_17/123.py", "__main__", "notebook cell"),
    ],
)
def test_a_file_is_shown_from_where_its_module_is_imported(filename: str, module: str, shown: str) -> None:
    user = run_as(filename, module, "\n\nhere = locate()", locate=user_location)
    assert (user["here"].file, user["here"].line) == (shown, 3)


def test_a_notebook_cell_is_shown_by_its_number() -> None:
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_17/123.py": 4}))
    names = {"locate": user_location, "get_ipython": lambda: shell}
    user = run_as("/tmp/ipykernel_17/123.py", "__main__", "here = locate()\ndef f(): pass", **names)
    assert user["here"].file == "notebook cell In[4]"
    assert function_location(user["f"]) == "f (notebook cell In[4]:2)"


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (split_words, "split_words"),
        (lambda x: x, "lambda"),
        (functools.partial(split_words, "a"), "split_words"),
        (Doubler(), "Doubler"),
        (Doubler().double, "Doubler.double"),
        (functools.wraps(split_words)(lambda x: x), "split_words"),
        (functools.lru_cache(split_words), "split_words"),
        (str.split, "str.split"),
        (len, "len"),
        (int, "int"),
    ],
)
def test_a_function_is_called_by_the_name_that_the_user_gave_it(function: Any, name: str) -> None:
    assert function_name(function) == name


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (split_words, line_of(split_words)),
        (functools.partial(split_words, "a"), line_of(split_words)),
        (Doubler(), line_of(Doubler.__call__)),
        (Doubler().double, line_of(Doubler.double)),
        (functools.lru_cache(split_words), line_of(split_words)),
    ],
)
def test_a_function_written_in_python_has_a_line(function: Any, line: int) -> None:
    assert function_location(function) == f"{function_name(function)} ({HERE}:{line})"


@pytest.mark.parametrize("function", [str.split, len, int, functools.partial(max, 1)])
def test_a_function_of_the_interpreter_has_only_a_name(function: Any) -> None:
    assert function_location(function) == function_name(function)


def test_an_object_that_wraps_itself_does_not_hang() -> None:
    class Snake:
        def __call__(self) -> None: ...

        @property
        def __wrapped__(self) -> Snake:
            return self

    assert function_name(Snake()) == "Snake"
