"""What of a value is looked at, to find out whether a function has changed it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pytest

from penstock.runtime.operators.user_code.changes_in_place import is_changed, parts_of


@dataclass
class Total:
    n: int
    items: list[int] = field(default_factory=list)


class Plain:
    """Has attributes, one of which is made when it is asked for."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.items: list[int] = []
        self._cache: dict[str, int] = {}

    @cached_property
    def double(self) -> int:
        self._cache["double"] = 2 * self.n
        return 2 * self.n


class Silent:
    """Answers for any attribute with an error."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


def grow(value: Any) -> None:
    value["items"].append(3)


def set_n(value: Any) -> None:
    value.n = 77


def grow_items(value: Any) -> None:
    value.items.append(3)


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ({"n": 1}, lambda value: value.update(n=77)),
        ({"n": 1}, lambda value: value.update(m=1)),
        ({"items": [1, 2]}, grow),
        ({"by": {"a": 1}}, lambda value: value["by"].update(a=2)),
        ({"seen": {1}}, lambda value: value["seen"].add(2)),
        (("key", [1]), lambda value: value[1].append(2)),
        ([[1], [2]], lambda value: value[1].clear()),
        ({1, 2}, lambda value: value.remove(2)),
        (bytearray(b"ab"), lambda value: value.reverse()),
        (Total(1), set_n),
        (Total(1), grow_items),
        (Plain(1), set_n),
        (Plain(1), grow_items),
        ({"inner": Plain(1)}, lambda value: set_n(value["inner"])),
    ],
)
def test_a_change_in_place_is_seen(value: Any, change: Callable[[Any], None]) -> None:
    before = parts_of(value)
    assert not is_changed(value, before)
    change(value)
    assert is_changed(value, before)


@pytest.mark.parametrize("value", [1, "text", None, (1, 2), Plain, object(), len, [], {}])
def test_a_value_that_nobody_touches_is_unchanged(value: Any) -> None:
    assert not is_changed(value, parts_of(value))


def test_a_users_own_attribute_access_is_not_asked() -> None:
    assert parts_of(Silent()) == ([], [])


def test_filling_a_cache_is_no_change() -> None:
    value = Plain(1)
    before = parts_of(value)
    assert value.double == 2
    assert value._cache == {"double": 2}
    assert not is_changed(value, before)


def test_a_large_value_costs_no_more_than_its_first_parts() -> None:
    sizes, parts = parts_of([[0] * 500] * 500)
    assert len(parts) == 1_000
    assert len(sizes) == 501
    value = [0] * 5_000
    before = parts_of(value)
    value.append(0)
    assert is_changed(value, before)  # its length is looked at all the same
