from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.executor import EXECUTOR_GROUP, Executor, find_executor


class NullExecutor:
    def submit(self, job: Any, config: Any) -> Any:
        return None


@pytest.fixture(autouse=True)
def installed_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that an entry point can name."""
    module = ModuleType("executor_plugin")
    vars(module).update(NullExecutor=NullExecutor, nothing=dict)
    monkeypatch.setitem(sys.modules, "executor_plugin", module)


def plugin(name: str, attribute: str = "NullExecutor") -> EntryPoint:
    return EntryPoint(name, f"executor_plugin:{attribute}", EXECUTOR_GROUP)


def test_the_only_installed_executor_is_taken_whatever_its_name() -> None:
    executor = find_executor([plugin("mine")])
    assert isinstance(executor, NullExecutor)
    assert isinstance(executor, Executor)


def test_ray_is_taken_among_several() -> None:
    broken = EntryPoint("other", "no_such_module:x", EXECUTOR_GROUP)
    assert isinstance(find_executor([broken, plugin("ray")]), NullExecutor)


def test_with_none_installed_the_error_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"pip install penstock.*executor="):
        find_executor([])


def test_several_executors_without_ray_are_refused_by_their_names() -> None:
    with pytest.raises(ConfigurationError, match="no executor 'ray' is installed, only: dask, mine"):
        find_executor([plugin("mine"), plugin("dask")])


def test_something_else_than_an_executor_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'mine' .*has no method `submit"):
        find_executor([plugin("mine", "nothing")])
