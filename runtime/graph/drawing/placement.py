"""The place of every node from left to right, in a given order.

A node wants to be at the mean of its neighbours. The nodes of a layer must keep their order and distance.
The places that are nearest to the wanted ones, by the sum of squares, are those of an isotonic regression.
It takes each node's distance from the first one away, pools neighbours that are in the wrong order, and adds
the distance again. Some sweeps down and up bring the layers into agreement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from penstock.runtime.graph.drawing.layers import Layered

_SWEEPS: Final = 8


def place_nodes(
    graph: Layered, order: Sequence[Sequence[int]], widths: Mapping[int, float], gap: float
) -> dict[int, float]:
    """The middle of each node; the left edge of the picture is 0.

    Args:
        order: The nodes of each layer from left to right.
        widths: Width of each node.
        gap: Least distance of two nodes in a layer.

    Example:
        >>> from penstock.runtime.graph.drawing.layers import into_layers
        >>> place_nodes(into_layers(3, [(0, 1), (0, 2)]), [[0], [1, 2]], {0: 10, 1: 10, 2: 10}, gap=20)
        {0: 20.0, 1: 5.0, 2: 35.0}
    """
    offsets = [_offsets(layer, widths, gap) for layer in order]
    middle = {
        node: offset - layer_offsets[-1] / 2
        for layer, layer_offsets in zip(order, offsets, strict=True)
        for node, offset in zip(layer, layer_offsets, strict=True)
    }
    above, below = graph.neighbours(above=True), graph.neighbours(above=False)
    rows = list(zip(order, offsets, strict=True))
    for sweep in range(_SWEEPS):
        neighbours, sequence = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for layer, layer_offsets in sequence:
            wanted = [_mean(middle, neighbours.get(node, (node,))) for node in layer]
            middle.update(zip(layer, nearest_in_order(wanted, layer_offsets), strict=True))
    left = min((middle[node] - widths[node] / 2 for node in middle), default=0.0)
    return {node: round(middle[node] - left, 1) for node in sorted(middle)}


def nearest_in_order(wanted: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """The nearest places whose distances are at least those of the offsets.

    Example:
        >>> nearest_in_order([0, 0, 50], [0, 10, 20])
        [-5.0, 5.0, 50.0]
    """
    pools: list[tuple[float, int]] = []  # sum and number of those that are moved together
    for place, offset in zip(wanted, offsets, strict=True):
        total, count = place - offset, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    moved = [total / count for total, count in pools for _ in range(count)]
    return [place + offset for place, offset in zip(moved, offsets, strict=True)]


def _offsets(layer: Sequence[int], widths: Mapping[int, float], gap: float) -> list[float]:
    """Least distance of each node of a layer from the first one."""
    steps = ((widths[a] + widths[b]) / 2 + gap for a, b in pairwise(layer))
    return list(accumulate(steps, initial=0.0))


def _mean(middle: Mapping[int, float], nodes: Sequence[int]) -> float:
    return sum(middle[node] for node in nodes) / len(nodes)
