"""The notebook that teaches Penstock in ten minutes, executed by a real kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_notebook import TEN_MINUTES, executed, outputs

# `tests/on_ray/test_notebook.py` runs a job in a kernel each time.
pytestmark = [pytest.mark.ray, pytest.mark.long]


def test_the_ten_minutes_work_as_they_stand(
    tmp_path: Path, ray_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", ray_environment["RAY_ADDRESS"])
    said = "".join(output.get("text", "") for output in outputs(executed(tmp_path, TEN_MINUTES)))
    assert "the cause: process" in said
    assert "'by-sensor': 3" in said
    assert "20,000 readings, each of them once" in said
