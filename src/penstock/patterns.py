"""Patterns over the records of a key, for `stream.pattern(...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.pattern_stream import PatternStream as PatternStream
    from penstock.runtime.operators.patterns.pattern import (
        AfterMatchSkipStrategy as AfterMatchSkipStrategy,
    )
    from penstock.runtime.operators.patterns.pattern import Pattern as Pattern
    from penstock.runtime.operators.patterns.pattern_operator import PatternContext as PatternContext
    from penstock.runtime.operators.patterns.pattern_operator import (
        PatternProcessFunction as PatternProcessFunction,
    )
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
