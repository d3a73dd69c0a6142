"""The call of a user's code that a thread is in right now, read from its stack.

Only a thread that is stuck is looked at, so nothing is noted while operators run: that would cost something
for every batch. Every call of an operator goes through `LocatedOperators.call`, and every call of a source's
reader through `SourceOperator.guarded`. Their frames are on the stack, and know the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, Final

from penstock.runtime.operators.chain import LocatedOperators
from penstock.runtime.operators.source_operator import SourceOperator


def running_call(frame: FrameType | None) -> str | None:
    """The function of a user that a thread is in: `map function parse (job.py:12)`; `None` for none."""
    while frame is not None:
        describe = _CALLERS.get(frame.f_code)
        if describe is not None:
            return describe(frame.f_locals)
        frame = frame.f_back
    return None


def _of_operator(found: Mapping[str, Any]) -> str:
    doing: str = found["self"].operators[found["index"]].doing
    return doing


def _of_source(found: Mapping[str, Any]) -> str:
    doing: str = found["self"].doing(found["what"])
    return doing


#: How the frames of these functions are read.
_CALLERS: Final[Mapping[CodeType, Callable[[Mapping[str, Any]], str]]] = {
    LocatedOperators.call.__code__: _of_operator,
    SourceOperator.guarded.__code__: _of_source,
}
