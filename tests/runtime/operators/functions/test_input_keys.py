"""`InputKeys` refuses the keys of two inputs only if none of them can be equal."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.operators.functions.input_keys import InputKeys


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, "1"),
        ("a", b"a"),
        ((1, "a"), (1, 2)),
        ((1, 2), (1, 2, 3)),
        (datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_keys_that_can_never_be_equal_are_refused(first: Any, second: Any) -> None:
    keys = InputKeys()
    keys.check(0, [first])
    with pytest.raises(KeyTypeError, match="can never be equal"):
        keys.check(1, [second])


@pytest.mark.parametrize(
    ("first", "second"), [(1, 2.5), (Decimal(1), True), (None, "a"), ((1, None), (2, "a"))]
)
def test_keys_that_may_be_equal_are_accepted(first: Any, second: Any) -> None:
    keys = InputKeys()
    keys.check(0, [first])
    keys.check(1, [second])


def test_an_input_with_too_many_kinds_of_keys_is_not_compared() -> None:
    keys = InputKeys()
    keys.check(0, [tuple(range(length)) for length in range(40)])
    keys.check(1, [tuple(range(39))])
