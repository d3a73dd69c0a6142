"""Makes `subtask_setup` importable, which lies beside this file, and closes the subtasks of a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from subtask_setup import CHECKPOINTING, Log, SubtaskSetup  # noqa: E402 (the path comes first)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def make_subtask() -> Iterator[Callable[..., SubtaskSetup]]:
    """Makes subtasks; each is closed at the end."""
    made: list[SubtaskSetup] = []

    def make(
        env: StreamEnvironment, vertex: str, config: JobConfig = CHECKPOINTING, **more: Any
    ) -> SubtaskSetup:
        made.append(SubtaskSetup(env, vertex, config, **more))
        return made[-1]

    yield make
    for each in made:
        each.subtask.close()
