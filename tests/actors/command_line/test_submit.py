"""`penstock submit` leaves no program that its user does not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from penstock.actors.client.master_calls import Deadline
from penstock.actors.command_line.submit import wait_for_job


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def test_ctrl_c_names_the_program_that_continues(capsys: pytest.CaptureFixture[str]) -> None:
    ray: Any = SimpleNamespace(wait_for_job=interrupted)
    with pytest.raises(KeyboardInterrupt):
        wait_for_job(ray, "raysubmit_1", Deadline(1.0, "", ""))
    said = "program raysubmit_1 was not stopped and continues: `ray job stop raysubmit_1`"
    assert capsys.readouterr().err == f"penstock: {said}\n"
