"""Steps of the kit for a connector that is like another one: a few of them, so that tests stay fast.

`PENSTOCK_DEEP=2` runs all of it.
"""

from __future__ import annotations

from typing import Final

from deep import DEEP

from penstock.testing.connectors import SinkTests, SourceTests

_FEW_OF_SINK: Final = ("pre-commit", "complete", "commit of one subtask", "last write")
_FEW_OF_SOURCE: Final = ("poll", "complete", "second notify")

#: Steps of a sink and of a source that are like another one.
SINK_STEPS: Final = _FEW_OF_SINK if DEEP == 1 else SinkTests.steps
SOURCE_STEPS: Final = _FEW_OF_SOURCE if DEEP == 1 else SourceTests.steps
