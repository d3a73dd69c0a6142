"""Operator state, and the state of a savepoint as tables.

Keyed state (`ValueState`, `ListState`, ...) is declared with names from `penstock`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.state_frames import read_state as read_state
    from penstock.runtime.io.state_frames import write_state as write_state
    from penstock.runtime.operators.operator_state import RawState as RawState
    from penstock.runtime.state.declared_state import OperatorListState as OperatorListState
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
