"""Options for the whole test run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

#: No generated test fails because the machine is busy with something else.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="also run the tests marked 'long'")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests want to be seen with `record_property("shown", ...)`, wherever they ran."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in getattr(report, "user_properties", ()):
            if name == "shown":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}:\n{text}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-long"):
        return
    skip = pytest.mark.skip(reason="takes long: give --run-long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
