"""`SinkContext`: what a sink's writer may know and use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Self

from penstock.runtime.operators.metrics import AsksForMetrics, Metrics
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.protocols import ConnectorContext
from penstock.runtime.operators.state.operator_state import ListStates
from penstock.runtime.state.operator_list_state import ListStateMode, OperatorListState


@dataclass(frozen=True, slots=True)
class SinkContext(ConnectorContext, AsksForMetrics):
    r"""Where a writer runs, and the lists and metrics of its subtask.

    A writer that keeps more than transactions has it in lists. They are part of the checkpoint whose
    `prepare_commit` was called last. The class of the writer may also declare them; they are there from the
    first `write` on.

    Attributes:
        lists: The lists of the subtask.
        metrics: The metrics of the subtask.

    Example:
        >>> from penstock.state import OperatorListState
        >>> class Writer:
        ...     names = OperatorListState(str)
        ...
        ...     def write(self, batch):
        ...         self.names.update({*self.names, *(row["name"] for row in batch.rows)})
        ...
        ...     def prepare_commit(self):
        ...         return []
        ...
        ...     def close(self):
        ...         pass
        >>> class Names:
        ...     def writer(self, context):
        ...         return Writer()
        >>> from penstock.testing import OperatorHarness
        >>> with OperatorHarness.of(lambda rows: rows.sink("names", Names())) as harness:
        ...     pushed = harness.push([{"name": "ann"}, {"name": "ann"}])
        ...     harness.snapshot().lists["names"][1]
        (b'\xa3ann',)
    """

    lists: ListStates = field(default_factory=ListStates)
    metrics: Metrics = field(default_factory=Metrics)

    @classmethod
    def of(cls, context: OperatorContext) -> Self:
        """That of a sink's operator."""
        where = {each.name: getattr(context.connector, each.name) for each in fields(context.connector)}
        return cls(**where, lists=context.lists, metrics=context.metrics)

    @property
    def _metrics(self) -> Metrics:
        return self.metrics

    def operator_list_state(
        self,
        name: str,
        mode: ListStateMode = "split_distribute",
        *,
        of_type: type | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> OperatorListState[Any]:
        """A list of this subtask; see `OperatorListState` and `FunctionContext.operator_list_state`.

        Args:
            name: Unique in the operator.
            mode: How a restore shares the values out: `"split_distribute"`, `"union"` or `"broadcast"`.
            of_type: The type of the values; by default anything goes.
            migrate: Makes a value of `of_type` of a restored one that is none.

        Raises:
            ConfigurationError: There is no such mode, or the list has another one, or another type.
            StateMismatchError: The job starts from a snapshot that holds the list with another mode or type.
        """
        some: Any = of_type
        declaration: Any = OperatorListState(some, mode=mode, name=name, migrate=migrate)
        return self.lists.ask(declaration)
