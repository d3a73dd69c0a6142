"""`OutputTag`: a side output that a process function declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import checked_name, nearest_name, normal_name

T = TypeVar("T")


class OutputTag(Generic[T]):
    """A side output, declared as an attribute of the function's class (Flink's `OutputTag`).

    Give `ctx.output` the tag and a record, and `side_output` of the resulting stream the tag.

    Args:
        name: The attribute's name by default.

    Raises:
        ConfigurationError: The name is invalid.

    Example:
        >>> class Sort:
        ...     broken = OutputTag[str]()
        ...     odd = OutputTag[int]("odd numbers")
        >>> Sort.broken, Sort.odd
        (OutputTag('broken'), OutputTag('odd numbers'))
    """

    __slots__ = ("name",)

    def __init__(self, name: str | None = None) -> None:
        self.name = "" if name is None else checked_name("OutputTag", name)

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = self.name or attribute

    def __repr__(self) -> str:
        return f"OutputTag({self.name!r})"


def tag_name(tag: OutputTag[Any] | str) -> str:
    return tag.name if isinstance(tag, OutputTag) else normal_name(str(tag))


def tags_of(kind: type) -> Mapping[str, OutputTag[Any]]:
    """The side outputs that a class and its bases declare, by name.

    Raises:
        ConfigurationError: Two side outputs have one name.

    Example:
        >>> class Sort:
        ...     odd = OutputTag[int]()
        >>> list(tags_of(Sort))
        ['odd']
    """
    found: dict[str, OutputTag[Any]] = {}
    attributes: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        attributes.update(vars(base))
    for attribute, tag in attributes.items():
        if isinstance(tag, OutputTag) and found.setdefault(tag.name, tag) is not tag:
            msg = f"{kind.__name__}.{attribute} is a second side output called {tag.name!r}"
            raise ConfigurationError(msg)
    return found


def declared_name(tag: OutputTag[Any] | str, declared: Mapping[str, object], owner: str) -> str:
    """The name of a tag, if it is declared.

    Raises:
        ConfigurationError: The tag is not declared.

    Example:
        >>> declared_name("ood", {"odd": None}, "Sort")
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.ConfigurationError: Sort declares no side output 'ood'; did you mean 'odd'?
    """
    name = tag_name(tag)
    if name in declared:
        return name
    msg = f"{owner} declares no side output {name!r}{nearest_name(name, declared)}"
    if not declared:
        msg += f"; write `{name if name.isidentifier() else 'name'} = OutputTag()` into its class"
    raise ConfigurationError(msg)
