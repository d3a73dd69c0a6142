"""The keyword options that every operator of the graph API takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypedDict, get_args

from penstock.runtime.config.state_backends import HeapState, StateBackend
from penstock.runtime.graph.streams.checked_call import refuse
from penstock.runtime.names import problem_with_name


class OperatorOptions(TypedDict, total=False):
    """Where and how an operator runs.

    Attributes:
        parallelism: Number of subtasks; the environment's by default.
        num_cpus: CPUs that Ray reserves for each subtask. By default an operator takes what the chain has
            that it joins, and a chain's first operator takes 0. A number that differs from the chain's
            begins a new chain.
        num_gpus: GPUs likewise.
        resources: Other resources of Ray's likewise, by name: `{"host1": 1}`.
        start_new_chain: Never run in the same subtask as the producer.
        disable_chaining: Run in a subtask of its own, without producer and consumer.
        state_backend: Where the operator keeps its keyed state; the job's backend by default.
    """

    parallelism: int
    num_cpus: float
    num_gpus: float
    resources: Mapping[str, float]
    start_new_chain: bool
    disable_chaining: bool
    state_backend: StateBackend


#: Ray's names of resources that have an option of their own.
_OWN_OPTIONS: Final = {"CPU": "num_cpus", "GPU": "num_gpus"}

#: Names of all options.
OPTION_NAMES: Final = tuple(OperatorOptions.__annotations__)


def check_options(call: str, options: OperatorOptions) -> None:
    """Refuse values that can't be meant; `None` is the same as not given.

    Raises:
        GraphError: Names the option and the user's line.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "parallelism" in given:
        check_parallelism(call, given["parallelism"])
    for name in ("num_cpus", "num_gpus"):
        value = given.get(name, 0)
        if not _is_amount(value):
            refuse(f"{call}: {name} must be a number of at least 0, not {value!r}")
    _check_resources(call, given.get("resources", {}))
    for name in ("start_new_chain", "disable_chaining"):
        if not isinstance(given.get(name, False), bool):
            refuse(f"{call}: {name} must be True or False, not {given[name]!r}")
    if not isinstance(given.get("state_backend", HeapState()), get_args(StateBackend)):
        refuse(f"{call}: state_backend is HeapState() or RocksDB(...), not {given['state_backend']!r:.80}")


def _check_resources(call: str, resources: object) -> None:
    if not isinstance(resources, Mapping):
        refuse(f'{call}: resources must be amounts by name, such as {{"host1": 1}}, not {resources!r:.80}')
    for name, amount in resources.items():
        problem = problem_with_name(name)
        if problem is None and not str(name).isascii():
            problem = "Ray takes ASCII characters alone for them: give the nodes another name"
        if problem is not None:
            refuse(f"{call}: resources have names of Ray's: {problem} ({name!r:.80})")
        if name in _OWN_OPTIONS:
            refuse(f"{call}: give {_OWN_OPTIONS[name]}={amount!r:.80} instead of resources={{{name!r}: ...}}")
        if not _is_amount(amount):
            refuse(f"{call}: resources[{name!r}] must be a number of at least 0, not {amount!r:.80}")


def _is_amount(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < float("inf")


def check_parallelism(call: str, value: object, what: str = "parallelism") -> None:
    """Refuse a parallelism that is no positive whole number.

    Raises:
        GraphError: Names the user's line.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        refuse(f"{call}: {what} must be a whole number of at least 1, not {value!r}")
