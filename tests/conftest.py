"""Options for the whole test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="also run the tests marked 'long'")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-long"):
        return
    skip = pytest.mark.skip(reason="takes long: give --run-long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
