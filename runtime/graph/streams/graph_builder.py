"""Builds the stream graph of a program; its streams and their environment share the builder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.graph.stream_graph import Changes, StreamGraph, StreamNode, Upstream
from penstock.runtime.graph.streams.checked_call import OperatorOptions, check_options, refusals, refuse
from penstock.runtime.operators.coordinators import HasCoordinator
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.source import Source
from penstock.runtime.operators.user_code.function_class import FunctionClass, tags_of
from penstock.runtime.state.key_groups import default_max_parallelism
from penstock.runtime.state.known_states import StateInfo, broadcast_names_of, infos_of
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.user_location import user_location

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment


class GraphBuilder:
    """Adds operators to a stream graph.

    Args:
        stream_type: `DataStream`; this module can't import it, because `DataStream` imports this module.
        max_parallelism: Number of key groups; `None` computes it from each operator's parallelism.
    """

    def __init__(
        self,
        environment: StreamEnvironment,
        stream_type: type[DataStream[Any]],
        parallelism: int,
        max_parallelism: int | None,
    ) -> None:
        self.environment = environment
        self.stream_type = stream_type
        self.graph = StreamGraph()
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism

    def add(
        self,
        kind: str,
        what: str,
        factory: OperatorFactory | None,
        inputs: tuple[Upstream, ...],
        operator_id: str | None,
        options: OperatorOptions,
        *,
        source: Source[Any] | None = None,
        stateful: bool = False,
        keyed: bool = False,
        is_sink: bool = False,
        makes_watermarks: bool = False,
        coordinator: HasCoordinator | None = None,
        function: object = None,
        side_outputs: tuple[str, ...] = (),
        watermarks: WatermarkStrategy[Any] | None = None,
        in_columns: bool = False,
        is_committer: bool = False,
        has_committer: bool = False,
        changes: Changes | None = None,
    ) -> DataStream[Any]:
        """Add an operator, and return the stream of its main output.

        Args:
            kind: Name of the API's method: `map`.
            what: Name of the user's argument: `split_words`.
            stateful: Whether the operator has state; keyed operators, sources and sinks always do.
            function: The user's object or class, which may declare state and side outputs.
            side_outputs: Names of side outputs that no class declares.
            is_committer: Whether it commits for all writers of a sink, and so has exactly one subtask.
            has_committer: Whether it stages the output of a sink for such an operator.
            changes: The meaning of the records if they are not all new rows.
        """
        check_options(kind, options)
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        if "state_backend" in given and not keyed:
            refuse(f"{kind}: state_backend is for operators with keyed state; this operator has none")
        parallelism = given.setdefault("parallelism", self._parallelism)
        states = _declared_states(kind, function, operator_id, keyed=keyed, broadcast=_is_broadcast(inputs))
        with refusals(kind):
            tags = tuple(tags_of(type(function)))
        operator = OperatorSpec(
            operator_id or "",
            f"{kind}({what})",
            factory,
            source,
            user_location(),
            stateful or keyed or is_sink or source is not None or bool(states),
            keyed,
            is_sink,
            coordinator,
            states,
            watermarks,
            given.pop("state_backend", None),
            in_columns,
            is_committer,
            has_committer,
        )
        node = StreamNode(
            kind,
            operator,
            inputs=inputs,
            makes_watermarks=makes_watermarks,
            side_outputs=side_outputs or tags,
            max_parallelism=1 if is_committer else self._key_groups_for(kind, parallelism),
            changes=changes,
            **given,
        )
        return self.stream_type(self, (Upstream(self.graph.add(node)),))

    def _key_groups_for(self, kind: str, parallelism: int) -> int:
        if self._max_parallelism is None:
            return default_max_parallelism(parallelism)
        if parallelism > self._max_parallelism:
            refuse(
                f"{kind}: parallelism {parallelism} is more than the environment's max_parallelism "
                f"{self._max_parallelism}; raise max_parallelism (a job with saved state can't change it)"
            )
        return self._max_parallelism


def _is_broadcast(inputs: tuple[Upstream, ...]) -> bool:
    """Whether all records of a second input go to every subtask."""
    second = [upstream.is_broadcast for upstream in inputs if upstream.input_index == 1]
    return bool(second) and all(second)


def _declared_states(
    kind: str, function: object, operator_id: str | None, *, keyed: bool, broadcast: bool
) -> tuple[StateInfo, ...]:
    declaring = function.kind if isinstance(function, FunctionClass) else type(function)
    with refusals(kind):
        states = infos_of(declaring)
    of_keys = ", ".join(repr(state.name) for state in states if state.is_keyed)
    if of_keys and not keyed:
        refuse(
            f"{kind}: {declaring.__name__} declares keyed state ({of_keys}), so it needs a keyed stream: "
            "call key_by(function) first"
        )
    of_broadcast = ", ".join(map(repr, broadcast_names_of(declaring)))
    if of_broadcast and not broadcast:
        refuse(
            f"{kind}: {declaring.__name__} declares broadcast state ({of_broadcast}), so it needs a second "
            "stream, which is broadcast: data.connect(rules.broadcast())"
        )
    if states and operator_id is None:
        refuse(
            f"{kind}: {declaring.__name__} declares state, so the operator needs an id: {kind}(..., "
            'id="...") that stays the same when the program changes, because a restore finds state by the id'
        )
    return states
