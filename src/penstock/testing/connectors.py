"""The tests that every source and sink must pass; subclass them, and describe the external system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.testing.connectors.sink_tests import SinkTests as SinkTests
    from penstock.runtime.testing.connectors.source_tests import SourceTests as SourceTests
    from penstock.runtime.testing.connectors.worlds import SinkWorld as SinkWorld
    from penstock.runtime.testing.connectors.worlds import SourceWorld as SourceWorld
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
