"""Rule: a value that could not be read back is refused when it is written."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec


class TwoArguments(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class ReadsItself:
    """Raises in chosen methods of its class that unpickling runs."""

    def __init__(self, raises: type[BaseException] | None) -> None:
        self.raises = raises

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["raises"] is not None:
            raise state["raises"]
        self.__dict__.update(state)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReadsItself) and other.raises is self.raises

    __hash__ = None  # type: ignore[assignment]


class BecomesText:
    def __reduce__(self) -> tuple[Any, ...]:
        return str, ("something else",)


class Cents(int):
    """Is made of euros, and so by pickle a hundred times too large."""

    def __new__(cls, euros: int) -> Cents:
        return super().__new__(cls, euros * 100)


WRONG: dict[str, Callable[[], Any]] = {
    "an exception with two arguments": lambda: TwoArguments(3, "x"),
    "raises": lambda: ReadsItself(ValueError),
    "interrupts": lambda: ReadsItself(KeyboardInterrupt),
    "exits": lambda: ReadsItself(SystemExit),
    "another type": BecomesText,
    "another value": lambda: Cents(3),
}


@pytest.mark.parametrize("around", [lambda v: v, lambda v: [v], lambda v: {"k": (1, v)}, lambda v: [v] * 9])
@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
def test_a_value_that_does_not_come_back_is_refused_and_named(
    make: Callable[[], Any], around: Callable[[Any], Any]
) -> None:
    with pytest.raises(CodecError, match=rf"{type(make()).__name__} can be pickled but not read back"):
        ValueCodec().dumps(around(make()))


def test_an_exception_is_refused_with_its_remedy() -> None:
    with pytest.raises(CodecError, match=r"TypeError: .*missing 1 required .*Keep its text instead, or"):
        ValueCodec().dumps(TwoArguments(3, "x"))


@given(st.lists(st.sampled_from([None, ValueError, KeyError]), max_size=6))
def test_a_codec_writes_exactly_what_it_reads(raises: list[type[BaseException] | None]) -> None:
    """Also where the value decides, not the type, and wherever in a batch it stands."""
    rows = [ReadsItself(each) for each in raises]
    codec = ValueCodec()
    if any(raises):
        with pytest.raises(CodecError, match="not read back"):
            codec.dumps(rows)
    else:
        assert codec.loads(codec.dumps(rows)) == rows


def test_a_value_that_raises_anything_while_it_is_pickled_is_named() -> None:
    class Raises:
        errors = itertools.cycle([KeyboardInterrupt, SystemExit, TypeError])

        def __reduce__(self) -> Any:
            raise next(self.errors)

    for _ in range(3):
        with pytest.raises(CodecError, match="Raises can't be pickled"):
            ValueCodec().dumps(Raises())
