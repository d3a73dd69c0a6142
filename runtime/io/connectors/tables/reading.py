"""Checks of the settings that sources of tables have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.time.durations import seconds_in


def check_reading(source: Any, starts: Sequence[str]) -> None:
    """Check settings of a frozen source, and convert `watch` and `columns`.

    Args:
        starts: Names of the settings that say where to start; at most one may be given.

    Raises:
        ConfigurationError: A setting has a value that is not allowed.
    """
    checked_setting("batch_format", source.batch_format, ("rows", "arrow"))
    given = [name for name in starts if getattr(source, name) is not None]
    if len(given) > 1:
        msg = f"{' and '.join(given)} exclude each other: give one of them"
        raise ConfigurationError(msg)
    if source.timestamp is not None and source.timestamp.tzinfo is None:
        msg = "timestamp has no time zone: give one, such as tzinfo=UTC"
        raise ConfigurationError(msg)
    if source.watch is not None:
        object.__setattr__(source, "watch", seconds_in("watch", source.watch, above=0.0))
    if source.columns is not None:
        object.__setattr__(source, "columns", tuple(source.columns))
