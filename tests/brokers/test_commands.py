"""`penstock kafka` against a listener with TLS and passwords: it gets in, and no output has the password."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from serving.kafka import Broker

from penstock.actors.command_line.app import main

pytestmark = pytest.mark.kafka


def run(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[object, str]:
    """The exit code of `transactions list` with a file of settings, and all that it has printed."""
    words = ["penstock", "kafka", "transactions", "list", "--prefix", "none", "--config", str(file)]
    monkeypatch.setattr(sys, "argv", words)
    code: object = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    out, err = capsys.readouterr()
    return code, out + err


def test_settings_of_a_file_get_a_command_in_and_a_wrong_password_is_not_printed(
    real: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = real.client("SASL_SSL")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    assert run(file, capsys, monkeypatch) == (0, "no open transactions\n")
    wrong = {**settings, "sasl.password": "a wrong word of alice"}
    file.write_text("".join(f"{name}={value}\n" for name, value in wrong.items()))
    code, said = run(file, capsys, monkeypatch)
    assert code == 1
    assert "the user or the password is wrong" in said
    assert "wrong word" not in said
