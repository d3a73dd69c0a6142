"""Words from topic to topic, although a process is killed."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from serving.kafka import kafka_broker, light_broker


@pytest.mark.ray
@pytest.mark.parametrize(
    "start", [light_broker, pytest.param(kafka_broker, marks=[pytest.mark.kafka, pytest.mark.long])]
)
def test_each_count_is_committed_once_although_a_process_is_killed(
    run_example: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path, start: object
) -> None:
    with start(tmp_path / "kafka") as broker:  # type: ignore[operator]
        run = run_example(
            "kafka_word_count.py", "--bootstrap-servers", broker.bootstrap, "--words", 100_000, "--kill"
        )

    assert run.returncode == 0, run.stdout
    assert "restarts: 1" in run.stdout
    assert "each count is right and committed once" in run.stdout
