"""`PatternStream`: the matches of a pattern in the records of each key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    checked,
    checked_with_options,
    need_function,
    need_object,
    need_tag,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.windowed_stream import GroupedStream
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.time_order import by_arrival
from penstock.runtime.operators.patterns.pattern import Pattern
from penstock.runtime.operators.patterns.pattern_operator import (
    PatternOperator,
    PatternProcessFunction,
    Selection,
)
from penstock.runtime.operators.user_code.function_class import OutputTag, tags_of
from penstock.runtime.state.known_states import infos_of
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T = TypeVar("T")
K = TypeVar("K")
R = TypeVar("R")


class PatternStream(GroupedStream, Generic[T, K]):
    """Matches of a pattern in the records of each key; made by `KeyedStream.pattern`.

    Records wait until a watermark reaches them, and are matched in the order of their timestamps. A result
    has the timestamp of the record that completes the match. If a match is completed by time, or times out,
    the timestamp is the end of the time limit. If a skip strategy has held a match back, the timestamp is the
    moment at which it is released.

    A record whose timestamp the watermark has reached is late and counted. It goes to the side output
    `late_records` of the returned stream, or is dropped if no operator reads that output.
    """

    _next_step = "choose what each match emits, with select(id, function) or process(id, function) first"

    def __init__(
        self,
        builder: GraphBuilder,
        inputs: tuple[Upstream, ...],
        key_selector: Callable[[T], K],
        pattern: Pattern[T],
        order: Callable[[T], Any] = by_arrival,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        super().__init__(builder, inputs, key_selector)
        self._pattern = pattern
        self._order = order
        self._late_tag = late_tag

    @checked
    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Give the side output of late records a tag of your own, instead of the name `late_records`.

        Args:
            tag: Tag of the side output; read it with `stream.side_output(tag)` on the result of the pattern.
        """
        late_tag = need_tag("side_output_late_data", tag)
        parts = self._builder, self._inputs, self._key_selector, self._pattern, self._order
        return type(self)(*parts, late_tag)

    @checked_with_options
    def select(
        self,
        id: str,
        function: Callable[[dict[str, list[T]]], R],
        *,
        timed_out: OutputTag[dict[str, list[T]]] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Emit the result of a function for each match.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: Takes a match: a dict from the name of each step to the list of its records. The list of
                an optional step may be empty.
            timed_out: Tag of a side output for partial matches that exceed a limit of `within`. Each is a
                dict like the function's argument. By default they are dropped.
            **options: See `OperatorOptions`.
        """
        need_function("select", function, "match")
        tags = () if timed_out is None else (need_tag("select: timed_out", timed_out),)
        what = f"select({function_name(function)})"
        return self._add(id, what, Selection(function, timed_out), tags, options)

    @checked_with_options
    def process(
        self, id: str, function: PatternProcessFunction[K, T, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `PatternProcessFunction` for each match, and for partial matches that time out.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        need_object("process", function, PatternProcessFunction, "; for a plain function use select")
        with refusals("process"):
            tags = tuple(tags_of(type(function)))
            states = [state.name for state in infos_of(type(function)) if state.is_keyed]
        if states:
            refuse(
                f"process: {type(function).__name__} declares keyed state ({', '.join(map(repr, states))}), "
                "but a function of a pattern can't; keep state in a KeyedProcessFunction after the pattern"
            )
        return self._add(id, f"process({type(function).__name__})", function, tags, options)

    def _add(
        self,
        operator_id: str,
        what: str,
        function: PatternProcessFunction[Any, Any, Any],
        tags: tuple[str, ...],
        options: OperatorOptions,
    ) -> DataStream[Any]:
        if self._late_tag in tags:
            refuse(
                f"pattern: the side output {self._late_tag!r} is for late records; give one of the two "
                'another name, for example with side_output_late_data(OutputTag("late"))'
            )
        return self._builder.add(
            "pattern",
            f"{self._pattern}, {what}",
            partial(
                PatternOperator, self._key_selector, self._pattern, function, self._order, self._late_tag
            ),
            self._inputs,
            operator_id,
            options,
            keyed=True,
            function=None if isinstance(function, Selection) else function,
            side_outputs=(self._late_tag, *tags),
        )

    def __repr__(self) -> str:
        return f"PatternStream({function_name(self._key_selector)}, {self._pattern})"


def checked_pattern(pattern: object) -> Pattern[Any]:
    """Return the pattern; refuse other values, and incomplete patterns."""
    if inspect.isclass(pattern) or not isinstance(pattern, Pattern):
        refuse(f'pattern needs a pattern such as Pattern.begin("a").next("b"), not {pattern!r:.80}')
    with refusals("pattern"):
        return pattern.checked()
