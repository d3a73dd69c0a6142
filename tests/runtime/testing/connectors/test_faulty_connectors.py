"""The kit bites: each planted fault fails the test that is about it."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import ModuleType

import faulty_sinks
import faulty_sources
import pytest

from penstock.testing.connectors import SinkTests, SourceTests

HERE = Path(__file__).parent
ROOT = HERE.parents[3]

#: The class of each fault, and the test that it must fail.
FAULTS = {
    f"{module.__name__}.py::{name}": found.fails
    for module in (faulty_sinks, faulty_sources)
    for name, found in vars(module).items()
    if name.startswith("Test")
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The message of each test that was named and has failed, by its fault; all ran in one process."""
    report = tmp_path_factory.mktemp("faults") / "report.xml"
    tests = [f"{HERE / fault}::{test}" for fault, test in FAULTS.items()]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    failed = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module, _, name = case.attrib["classname"].rpartition(".")
        for failure in case.findall("failure"):
            failed[f"{module.rpartition('.')[2]}.py::{name}"] = failure.attrib["message"]
    return failed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_fails_the_test_that_is_about_it(fault: str, outcomes: dict[str, str]) -> None:
    assert fault in outcomes, f"{fault} passes {FAULTS[fault]}"


@pytest.mark.parametrize(("suite", "module"), [(SinkTests, faulty_sinks), (SourceTests, faulty_sources)])
def test_there_is_a_fault_for_every_test(suite: type, module: ModuleType) -> None:
    """But for the one that looks for the methods of the protocol."""
    tests = {name for name in vars(suite) if name.startswith("test_")}
    planted = {test.partition("[")[0] for fault, test in FAULTS.items() if fault.startswith(module.__name__)}
    (simple,) = tests - planted
    assert simple in ("test_it_is_a_sink", "test_it_is_a_source")
