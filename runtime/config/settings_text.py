"""The settings of a job as text, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.redaction import redacted


def settings_as_text(config: JobConfig) -> dict[str, str]:
    """Every setting by its name; those of a part, such as `checkpointing`, have its name in front.

    Example:
        >>> settings = settings_as_text(JobConfig(credits=4))
        >>> settings["credits"], settings["state_backend"], settings["checkpointing"]
        ('4', 'HeapState', 'None')
    """
    return dict(_flat(config, ""))


def _flat(settings: Any, prefix: str) -> Iterator[tuple[str, str]]:
    for each in fields(settings):
        value = getattr(settings, each.name)
        if is_dataclass(value):
            yield f"{prefix}{each.name}", type(value).__name__
            yield from _flat(value, f"{prefix}{each.name}.")
        else:
            yield f"{prefix}{each.name}", redacted(str(value))
