"""Settings that several sources of messages have, and their checks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Sequence

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.json_format import Json


def check_installed(module: str, system: str, extra: str) -> None:
    """Check that the client of a system is installed.

    Raises:
        ConfigurationError: It is not installed; the message says how to install it.
    """
    if importlib.util.find_spec(module) is None:
        msg = (
            f"{system} needs the library {module}. Install it on every node: pip install 'penstock[{extra}]'"
        )
        raise ConfigurationError(msg)


def checked_names(setting: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple; refuse an empty name, a repeated name, and no name."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names or not all(isinstance(name, str) and name for name in names):
        msg = f"{setting}={given!r} is not allowed: give one or more names"
        raise ConfigurationError(msg)
    if len(set(names)) < len(names):
        msg = f"{setting}={given!r} has a name twice"
        raise ConfigurationError(msg)
    return names


def check_learns_nothing(setting: str, form: Format) -> None:
    """Refuse a format that learns its schema where no sample can be read before the job starts."""
    if isinstance(form, Json) and form.learns:
        msg = (
            f"{setting}=Json('infer') is not allowed: no sample is read here before the job starts. Give a "
            "schema to Json"
        )
        raise ConfigurationError(msg)


def check_declared_split(setting: str, name: str, declared: Iterable[str]) -> None:
    """Refuse a restored split that the source does not have: its name comes from a snapshot."""
    known = tuple(declared)
    if name not in known:
        msg = (
            f"the restored state has a position in {name!r}, which {setting}={known!r} does not name. "
            f"Add it to {setting}, or start the job without this snapshot"
        )
        raise ConfigurationError(msg)


def check_takes_checkpoints(config: JobConfig) -> None:
    """Refuse a job without checkpoints: its messages would never be acknowledged."""
    if config.checkpointing is None:
        msg = (
            "messages are acknowledged when a completed checkpoint covers them, but this job takes none. Set "
            "checkpointing=Checkpointing(every=...)"
        )
        raise ConfigurationError(msg)
