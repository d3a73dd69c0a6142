"""The order of nodes in each layer, so that few links cross.

The order with the fewest crossings is NP-hard to find. The median heuristic comes near: layer by layer, a
node moves to the median place of its neighbours, down and up again some times. The best order on the way is
kept. Ties keep their order, so the same graph always gives the same picture.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from penstock.runtime.graph.drawing.layers import Layered

_SWEEPS: Final = 12


def order_layers(graph: Layered) -> list[list[int]]:
    """The nodes of each layer from left to right.

    Example:
        >>> from penstock.runtime.graph.drawing.layers import into_layers
        >>> order_layers(into_layers(4, [(0, 3), (1, 2)]))
        [[0, 1], [3, 2]]
    """
    above, below = graph.neighbours(above=True), graph.neighbours(above=False)
    order = [list(layer) for layer in graph.layers]
    best, fewest = [list(layer) for layer in order], crossings(order, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        if sweep % 2 == 0:
            for upper, layer in itertools.pairwise(order):
                _sort(layer, upper, above)
        else:
            for layer, lower in reversed(list(itertools.pairwise(order))):
                _sort(layer, lower, below)
        crossed = crossings(order, below)
        if crossed < fewest:
            best, fewest = [list(layer) for layer in order], crossed
    return best


def crossings(order: Sequence[Sequence[int]], below: Mapping[int, Sequence[int]]) -> int:
    """How many pairs of links cross."""
    count = 0
    for upper, lower in itertools.pairwise(order):
        place = {node: index for index, node in enumerate(lower)}
        seen: list[int] = []
        for node in upper:
            ends = sorted(place[other] for other in below.get(node, ()))
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _sort(layer: list[int], fixed: Sequence[int], neighbours: Mapping[int, Sequence[int]]) -> None:
    """Sort a layer by the places of its neighbours in the fixed layer; nodes without any stay about there."""
    place = {node: index for index, node in enumerate(fixed)}
    scale = len(fixed) / len(layer)
    wanted = {
        node: median([place[other] for other in neighbours[node]]) if node in neighbours else index * scale
        for index, node in enumerate(layer)
    }
    layer.sort(key=wanted.__getitem__)
