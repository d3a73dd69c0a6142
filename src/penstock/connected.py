"""Two connected streams: `a.connect(b)`, functions with a method for each stream, and broadcast state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.connected_streams import (
        BroadcastConnectedStream as BroadcastConnectedStream,
    )
    from penstock.runtime.graph.streams.connected_streams import ConnectedStreams as ConnectedStreams
    from penstock.runtime.graph.streams.connected_streams import (
        KeyedBroadcastConnectedStream as KeyedBroadcastConnectedStream,
    )
    from penstock.runtime.graph.streams.connected_streams import (
        KeyedConnectedStreams as KeyedConnectedStreams,
    )
    from penstock.runtime.operators.functions.broadcast_process_function import (
        BroadcastContext as BroadcastContext,
    )
    from penstock.runtime.operators.functions.broadcast_process_function import (
        BroadcastProcessFunction as BroadcastProcessFunction,
    )
    from penstock.runtime.operators.functions.broadcast_process_function import (
        KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    )
    from penstock.runtime.operators.functions.co_process_function import (
        CoProcessFunction as CoProcessFunction,
    )
    from penstock.runtime.operators.functions.co_process_function import (
        KeyedCoProcessFunction as KeyedCoProcessFunction,
    )
    from penstock.runtime.state.broadcast_state import BroadcastState as BroadcastState
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
