"""Two connected streams: `a.connect(b)`, functions with a method for each stream, and broadcast state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.connected_streams import ConnectedStreams as ConnectedStreams
    from penstock.runtime.graph.streams.connected_streams import (
        KeyedConnectedStreams as KeyedConnectedStreams,
    )
    from penstock.runtime.operators.functions.co_process_function import (
        CoProcessFunction as CoProcessFunction,
    )
    from penstock.runtime.operators.functions.co_process_function import (
        KeyedCoProcessFunction as KeyedCoProcessFunction,
    )
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
