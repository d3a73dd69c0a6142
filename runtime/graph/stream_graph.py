"""The stream graph: operators and connections before chaining, and the ids of operators.

A stream can only be made from operators that already exist, so the order of the nodes is a topological order
(Flink: `StreamGraph`). Chaining turns the graph into the job graph.

A checkpoint stores state by operator id. A new version of a job finds its state only by ids that survive
changes of the program. So users give ids to operators with state. Operators without a user's id are numbered
by kind: `map-1`, `map-2`. These numbers skip ids that a user has given.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.job_graph import OperatorSpec, Partitioner, Partitioning

_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


def problem_with_id(operator_id: object) -> str | None:
    """Return the reason why this is not a valid operator id; `None` if it is."""
    if not isinstance(operator_id, str):
        return f"an operator id must be a string, not {type(operator_id).__name__} ({operator_id!r:.60})"
    if not operator_id:
        return "an operator id must not be empty"
    if not _ID.fullmatch(operator_id):
        return (
            f"operator id {operator_id!r:.120} must be at most 100 letters (a to z, A to Z), digits, '_', "
            "'-' and '.', and begin with a letter, a digit or '_': it is part of file names and of paths in "
            f"the REST interface; for example {_fitting(operator_id)!r}"
        )
    return None


def _fitting(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")
    return re.sub(r"[^A-Za-z0-9_.]+", "-", plain).strip("-.")[:100] or "my-operator"


def _numbered(kind: str, taken: Set[str]) -> Iterator[str]:
    names = (f"{kind}-{number}" for number in itertools.count(1))
    return (name for name in names if name not in taken)


@dataclass(frozen=True, slots=True)
class Upstream:
    """An output of an operator, as another operator reads it.

    Attributes:
        tag: Name of a side output; `None` for the main output.
        partitioner: The user's choice; `None` lets chaining choose.
        input_index: Number of the reader's input: 0, or 1 for the second one.
    """

    node: int
    tag: str | None = None
    partitioner: Partitioner | None = None
    input_index: int = 0

    @property
    def is_broadcast(self) -> bool:
        return self.partitioner is not None and self.partitioner.partitioning is Partitioning.BROADCAST


#: Kinds of operators that pass on records unchanged.
_KEEP_RECORDS: Final = frozenset({"filter", "rate_limit", "sorted_by_time", "split", "timestamps"})


@dataclass(frozen=True, slots=True)
class Changes:
    """The records of an operator are changes of rows, not only new rows.

    Attributes:
        change_kind: Column with the kind of each change; `None` if a record replaces the last one of its key.
    """

    change_kind: str | None = None


@dataclass(frozen=True, slots=True)
class StreamNode:
    """An operator before chaining.

    Attributes:
        kind: Kind of the operator, such as `map` or `source`; generated ids begin with it.
        operator: The operator as it is deployed; its id is empty if the user chose none.
        makes_watermarks: Whether the operator replaces upstream watermarks with its own.
        num_cpus: The user's choice; `None` accepts the choice of any chain. The same applies to `num_gpus`
            and `resources`.
        start_new_chain: Never chain the operator to its producer.
        disable_chaining: Never chain the operator to another operator.
        changes: The meaning of its records; `None` if all of them are new rows, or if it is not known.
    """

    kind: str
    operator: OperatorSpec
    parallelism: int
    inputs: tuple[Upstream, ...] = ()
    makes_watermarks: bool = False
    side_outputs: tuple[str, ...] = ()
    max_parallelism: int = 128
    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] | None = None
    start_new_chain: bool = False
    disable_chaining: bool = False
    changes: Changes | None = None


@runtime_checkable
class KnowsSchema(Protocol):
    """A source with the Arrow schema of its rows; `None` if it is not known before the source reads."""

    arrow_schema: Any


@runtime_checkable
class TakesSchema(Protocol):
    """A sink that needs the columns of its rows even if there are no rows."""

    def take_schema(self, arrow_schema: Any) -> None:
        """Take the Arrow schema of the rows if it is known before the job runs, else `None`."""
        ...


class StreamGraph:
    """Collects nodes and refuses repeated ids."""

    def __init__(self) -> None:
        self._nodes: list[StreamNode] = []
        self._by_id: dict[str, StreamNode] = {}

    @property
    def nodes(self) -> tuple[StreamNode, ...]:
        return tuple(self._nodes)

    def node(self, number: int) -> StreamNode:
        return self._nodes[number]

    def add(self, node: StreamNode) -> int:
        """Add a node and return its number; a `GraphError` names both lines if its id is taken."""
        operator = node.operator
        if operator.id:
            first = self._by_id.setdefault(operator.id, node)
            if first is not node:
                msg = (
                    f"{operator.defined_at}: the id {operator.id!r} of this {node.kind} is already taken by "
                    f"the {first.kind} at {first.operator.defined_at}; give each operator an id of its own"
                )
                raise GraphError(msg)
        self._nodes.append(node)
        return len(self._nodes) - 1

    def shrink_to(self, count: int) -> None:
        """Remove the nodes that were added last, so that `count` are left."""
        del self._nodes[count:]
        self._by_id = {node.operator.id: node for node in self._nodes if node.operator.id}

    def schema_of(self, inputs: Iterable[Upstream]) -> Any:
        """The Arrow schema of the inputs; `None` if it is not known, or if the inputs differ."""
        found = [self._schema_of(upstream) for upstream in inputs]
        return found[0] if found and all(schema == found[0] for schema in found) else None

    def _schema_of(self, upstream: Upstream) -> Any:
        node = self._nodes[upstream.node]
        if node.kind in _KEEP_RECORDS:
            return self.schema_of(node.inputs)
        if upstream.tag is None and isinstance(node.operator.source, KnowsSchema):
            return node.operator.source.arrow_schema
        return None

    def maker_of_changes(self, inputs: Iterable[Upstream]) -> StreamNode | None:
        """The nearest upstream operator whose changes reach these inputs unchanged; `None` without one."""
        for upstream in inputs:
            node = self._nodes[upstream.node]
            if node.kind in _KEEP_RECORDS:
                found = self.maker_of_changes(node.inputs)
            else:
                found = node if upstream.tag is None and node.changes is not None else None
            if found is not None:
                return found
        return None

    def operator_ids(self) -> list[str]:
        """The id of each operator: the user's id, or an id made from its kind and number."""
        taken = {node.operator.id for node in self._nodes}
        fresh = {node.kind: _numbered(node.kind, taken) for node in self._nodes}
        return [node.operator.id or next(fresh[node.kind]) for node in self._nodes]
