"""Rule: whatever a user's exception is, its failure is reported: named, bounded, and fit for every place."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.error_text import (
    LONGEST_MESSAGE,
    LONGEST_TRACEBACK,
    error_text,
    fit_text,
    shortened,
    traceback_text,
)
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.snapshot.plain_values import from_plain, to_plain


def texts() -> st.SearchStrategy[str]:
    """Any text, with halves of surrogate pairs and characters that terminals obey."""
    return st.text(st.characters(categories=None), max_size=80)


class Broken(Exception):
    """An exception whose methods raise what it was given."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__("broken")
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised

    __repr__ = __str__


class BrokenNotes(Exception):
    """An exception whose attributes can't be read."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("__cause__", "__context__", "__notes__"):
            raise SystemExit(name)
        return super().__getattribute__(name)


def endless_frames(depth: int) -> BaseException:
    code = "def ping(n):\n    pong(n - 1) if n else [].pop()\ndef pong(n):\n    ping(n)\n"
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        names["ping"](depth)
    except (IndexError, RecursionError) as error:
        return error
    raise AssertionError


def circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def nested_groups(depth: int) -> BaseException:
    error: Exception = ValueError("the innermost")
    for _ in range(depth):
        error = ExceptionGroup("some", [error])
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "text raises": lambda: Broken(TypeError("no text")),
    "text interrupts": lambda: Broken(KeyboardInterrupt()),
    "text exits": lambda: Broken(SystemExit(3)),
    "text closes": lambda: Broken(GeneratorExit()),
    "causes can't be read": lambda: BrokenNotes("x"),
    "5 MB": lambda: ValueError("x" * 5_000_000),
    "bytes": lambda: ValueError(b"\xff\x00"),
    "characters that act": lambda: ValueError("\ud800 \x1b[31mred\x1b[0m \x00 \u202e"),
    "a circle of causes": circle,
    "groups in groups": lambda: nested_groups(3_000),
    "a large group": lambda: ExceptionGroup("many", [ValueError("y" * 10_000)] * 1_000),
    "800 frames": lambda: endless_frames(400),
    "endless frames": lambda: endless_frames(100_000),
}


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
def test_every_exception_has_texts_that_are_bounded_and_fit(make: Callable[[], BaseException]) -> None:
    error = make()
    message, trace = error_text(error), traceback_text(error)

    assert type(error).__name__ in message
    assert type(error).__name__ in trace or len(trace) == LONGEST_TRACEBACK
    assert len(message) <= LONGEST_MESSAGE
    assert len(trace) <= LONGEST_TRACEBACK
    for text in (message, trace):
        assert json.loads(json.dumps(text).encode()) == text.encode().decode()
        assert "\x1b" not in text
        assert "\x00" not in text


def test_a_group_names_its_first_errors() -> None:
    group = ExceptionGroup("two failed", [ValueError("a"), KeyError("b")])
    assert error_text(group) == "ExceptionGroup: two failed (2 sub-exceptions): ValueError: a; KeyError: 'b'"


@given(texts(), st.integers(100, 300))
def test_a_fit_text_is_encoded_bounded_and_stays_as_it_is(text: str, most: int) -> None:
    fit = fit_text(text * 5, most)

    assert len(fit) <= most
    assert fit.encode().decode() == fit
    assert all(letter.isprintable() or letter in "\n\t" or not letter.isascii() for letter in fit)
    assert fit_text(fit, most) == fit


@given(st.text("ab", max_size=500), st.integers(60, 200))
def test_a_shortened_text_keeps_its_ends_and_says_how_much_is_missing(text: str, most: int) -> None:
    short = shortened(text, most)
    if len(text) <= most:
        assert short == text
        return
    head, note, tail = short.split("\n")
    missing = int(note.split("(")[1].split()[0].replace(",", ""))
    assert len(short) <= most
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + missing + len(tail) == len(text)


@given(texts(), texts())
def test_a_cause_holds_fit_texts_and_survives_json(message: str, trace: str) -> None:
    cause = FailureCause(message * 200, None, trace * 200)
    data = json.loads(json.dumps(to_plain(cause), ensure_ascii=False).encode())
    assert from_plain(FailureCause, data) == cause
    assert len(cause.message) <= LONGEST_MESSAGE


def test_a_plain_traceback_is_as_python_prints_it() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    assert traceback_text(raised.value) == "".join(traceback.format_exception(raised.value))
