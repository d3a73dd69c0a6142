"""Checks for the tests of connectors. A failed check says what the connector did, and what it must do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from penstock.runtime.testing.simulation.run.report import difference

#: What a connector promises about each record after a failure.
Guarantee: TypeAlias = Literal["exactly_once", "at_least_once"]


def check_rows(
    found: Collection[Any], expected: Sequence[Any], advice: str, guarantee: Guarantee = "exactly_once"
) -> None:
    """Compare rows without regard to their order; `advice` says what the connector must do.

    Raises:
        AssertionError: A row is missing, or occurs too often. With `"at_least_once"` repeats are allowed.
    """
    differs = difference(expected, found)
    if differs is None or (guarantee == "at_least_once" and not differs.is_loss):
        return
    raise AssertionError("\n".join([*differs.lines(), advice]))


def check_no_secret(secret: str, texts: Iterable[tuple[str, str | bytes]]) -> None:
    """Look for a secret in `texts`, which are pairs of a place and the text found there.

    Raises:
        AssertionError: A text contains the secret.
    """
    assert secret, "the secret is empty, so no text can be searched for it: give the world a password"
    for place, text in texts:
        shown = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        assert secret.encode() not in shown, (
            f"{place} shows the secret. Keep secrets out of it, such as with field(repr=False)"
        )


def error_of(step: Callable[[], object]) -> Exception | None:
    """Run a step, and return its error."""
    try:
        step()
    except Exception as error:  # a connector may raise any error; a job restarts after each of them
        return error
    return None


def texts_of(error: BaseException | None) -> list[str]:
    """All texts of an error, for `check_no_secret`."""
    return [] if error is None else [repr(error), str(error), getattr(error, "cause_text", "")]


@contextmanager
def case(name: str) -> Iterator[None]:
    """Name the case of a test in its error."""
    try:
        yield
    except Exception as error:
        error.add_note(f"the case: {name}")
        raise
