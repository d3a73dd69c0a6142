"""The Java check of `penstock doctor`, and what the command line loads without it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.actors.command_line.checks import CheckStatus
from penstock.bridge.session import doctor
from penstock.bridge.session.doctor import java_check


def test_the_java_that_spark_would_use_is_named() -> None:
    pytest.importorskip("pyspark")
    found = java_check(os.environ)
    assert found is not None
    assert (found.name, found.status, found.is_required) == ("Java", CheckStatus.OK, False)
    assert " from " in found.text


def test_a_java_that_does_not_fit_is_broken_and_says_what_to_do() -> None:
    pytest.importorskip("pyspark")
    found = java_check({"JAVA_HOME": "/nowhere"})
    assert found is not None
    assert (found.status, found.is_required) == (CheckStatus.BROKEN, False)
    assert "JAVA_HOME=/nowhere" in found.text
    assert "unset it" in found.text


def test_no_java_is_looked_for_without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    assert java_check({"JAVA_HOME": "/nowhere"}) is None


def test_the_command_line_does_not_load_spark() -> None:
    program = (
        "import sys; from penstock.actors.command_line import app;"
        "assert not [m for m in sys.modules if m.startswith(('penstock.bridge', 'pyspark', 'raydp'))]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
