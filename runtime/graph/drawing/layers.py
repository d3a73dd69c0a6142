"""Layers: each vertex lies below all that it reads.

A vertex lies one layer below its lowest producer. A source lies right above its highest reader, so that its
edges are short. An edge that passes layers gets a *bend* in each of them. Then every link joins two
neighbouring layers, and the next steps need to know of nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph in layers.

    Attributes:
        layers: The nodes of each layer, the highest first. Nodes below `vertices` are vertices, others bends.
        routes: For each edge the nodes that it passes, from its source to its target.
        vertices: Number of vertices.
    """

    layers: tuple[tuple[int, ...], ...]
    routes: tuple[tuple[int, ...], ...]
    vertices: int

    def neighbours(self, *, above: bool) -> dict[int, list[int]]:
        """For each node the nodes that it is linked with, in the layer above or in the one below."""
        found: dict[int, list[int]] = {}
        for route in self.routes:
            for upper, lower in itertools.pairwise(route):
                node, other = (lower, upper) if above else (upper, lower)
                found.setdefault(node, []).append(other)
        return found


def into_layers(vertices: int, edges: Sequence[tuple[int, int]]) -> Layered:
    """Put a graph into layers.

    Args:
        vertices: How many there are. They are numbered in topological order.
        edges: Source and target of each; two vertices may have several.

    Example:
        >>> into_layers(3, [(0, 1), (1, 2), (0, 2)])
        Layered(layers=((0,), (1, 3), (2,)), routes=((0, 1), (1, 2), (0, 3, 2)), vertices=3)
    """
    layer_of = _layers(vertices, edges)
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for vertex, layer in enumerate(layer_of):
        layers[layer].append(vertex)
    routes: list[tuple[int, ...]] = []
    node = vertices
    for source, target in edges:
        route = [source]
        for layer in range(layer_of[source] + 1, layer_of[target]):
            layers[layer].append(node)
            route.append(node)
            node += 1
        routes.append((*route, target))
    return Layered(tuple(map(tuple, layers)), tuple(routes), vertices)


def _layers(vertices: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    layer_of = [0] * vertices
    for source, target in sorted(edges, key=lambda edge: edge[1]):  # all that leads to a source comes before
        layer_of[target] = max(layer_of[target], layer_of[source] + 1)
    read = {target for _, target in edges}
    for vertex in range(vertices):
        below = [layer_of[target] for source, target in edges if source == vertex]
        if vertex not in read and below:
            layer_of[vertex] = min(below) - 1
    return layer_of
