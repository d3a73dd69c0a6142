"""The options of `penstock ui`."""

from __future__ import annotations

from typer.testing import CliRunner

from penstock.actors.command_line.app import app


def test_the_help_says_that_errors_and_logs_may_quote_records() -> None:
    """`--hide-records` leaves them as they are."""
    shown = " ".join(CliRunner().invoke(app, ["ui", "--help"]).output.split())
    assert "--hide-records" in shown
    assert "Errors and logs may quote records." in shown
