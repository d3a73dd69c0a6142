"""The operators of a chain by their places: opened and closed from the tail, every failure located."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.runtime.errors import OperatorError, OperatorInterrupt, OperatorLocation
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.user_code.failure import LOCATED, located

T = TypeVar("T")


class LocatedOperators:
    """Calls operators, and turns whatever one raises into an error that names it.

    Args:
        operators: Each with its place in the job, in order.

    Attributes:
        locations: The places.
    """

    def __init__(self, operators: Sequence[tuple[OperatorLocation, Operator]]) -> None:
        self.locations = tuple(location for location, _ in operators)
        self.operators = tuple(operator for _, operator in operators)
        self._to_close: list[int] = []

    def open(self, contexts: Mapping[str, OperatorContext]) -> None:
        """Open all operators, the last one first: when an operator emits, everything below it is open.

        Args:
            contexts: By operator id, one for each operator.

        Raises:
            OperatorError: An operator failed; `close` releases those that were opened.
        """
        for index in reversed(range(len(self.operators))):
            context = contexts[self.locations[index].operator]
            self._to_close.append(index)
            self.call(index, self.operators[index].open, context)

    def close(self) -> None:
        """Close all operators that were opened, the last one first, even when one fails.

        Raises:
            OperatorError: The first failure; its `cause_text` ends with the others.
        """
        failures: list[OperatorError] = []
        interrupt: OperatorInterrupt | None = None
        for index in sorted(self._to_close, reverse=True):
            try:
                self.call(index, self.operators[index].close)
            except OperatorError as error:
                failures.append(error)
            except OperatorInterrupt as error:
                interrupt = interrupt or error
        self._to_close.clear()
        if interrupt is not None:
            raise interrupt
        if failures:
            first, *others = failures
            also = "".join(f"\nAlso while closing: {other}" for other in others)
            text = first.cause_text + also
            raise OperatorError(first.location, first.what, text, first.raised_at) from first

    def each(self, call: Callable[[Operator], T]) -> dict[str, T]:
        """What `call` gives for every operator, from the first to the last, by operator id.

        Raises:
            OperatorError: It failed for one of them.
        """
        return {
            location.operator: self.call(index, call, self.operators[index])
            for index, location in enumerate(self.locations)
        }

    def call(self, index: int, call: Callable[..., T], *arguments: Any) -> T:
        """Call something of operator `index`.

        Raises:
            OperatorError: It failed.
        """
        try:
            return call(*arguments)
        except LOCATED:
            raise
        except BaseException as error:
            # SystemExit, too: in a task's thread it would end the thread without a word.
            operator = self.operators[index]
            raise located(self.locations[index], operator.doing, error, operator.current_record) from error
