"""Samples of the records on an edge of a running job, as text for a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest

from penstock.runtime.graph.graph_info import EdgeInfo
from penstock.runtime.task.output_samples import OutputEdge, SampledRecord


@dataclass(frozen=True, slots=True)
class EdgeRecord:
    """A record that a subtask has sent.

    Attributes:
        subtask: Index of the subtask that sent the record.
        timestamp: Event time in microseconds since the epoch; `None` in a stream without event time.
        text: Python's `repr` of the record, at most 2,000 characters.
    """

    subtask: int
    timestamp: int | None
    text: str


def output_edge(edges: Sequence[EdgeInfo], place: int) -> OutputEdge:
    """The edge at index `place` of `edges`, as its sending subtasks identify it."""

    def named(edge: EdgeInfo, copy: int = 0) -> OutputEdge:
        return OutputEdge(edge.target, edge.source_operator, edge.side_output, edge.input_index, copy)

    wanted = named(edges[place])
    return named(edges[place], sum(named(edge) == wanted for edge in edges[:place]))


def merged(samples: Mapping[int, Sequence[SampledRecord]], most: int) -> list[EdgeRecord]:
    """At most `most` records, about equally many of each subtask.

    Example:
        >>> found = {0: [SampledRecord("a"), SampledRecord("b")], 1: [SampledRecord("c")]}
        >>> [record.text for record in merged(found, most=2)]
        ['a', 'c']
    """
    of_subtasks = (
        [EdgeRecord(subtask, record.timestamp, record.text) for record in records]
        for subtask, records in sorted(samples.items())
    )
    in_turn = chain.from_iterable(zip_longest(*of_subtasks))
    return [*islice((record for record in in_turn if record is not None), most)]
