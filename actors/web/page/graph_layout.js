// The positions of the vertices and edges of a job graph; computed once for each shape of the graph.

import { Graph, layout } from "./vendor/dagre.js";

export const WIDTH = 272; // of a vertex
export const LINE = 19; // of text
export const SHOWN = 4; // operators of a chain that a vertex names
const LABEL = { width: 92, height: 44, labelpos: "c" }; // two lines, one above the edge and one below

const linesOf = (vertex) => Math.min(vertex.operators.length, SHOWN) + (vertex.operators.length > SHOWN ? 1 : 0);
export const heightOf = (vertex) => 92 + LINE * linesOf(vertex);

export function arrange(graph) {
  const made = new Graph({ multigraph: true });
  made.setGraph({ rankdir: "LR", nodesep: 28, ranksep: 20, marginx: 12, marginy: 12 });
  made.setDefaultEdgeLabel(() => ({}));
  for (const vertex of graph.vertices) made.setNode(vertex.id, { width: WIDTH, height: heightOf(vertex) });
  graph.edges.forEach((edge, number) => made.setEdge(edge.source, edge.target, { ...LABEL }, String(number)));
  layout(made);
  return {
    vertices: Object.fromEntries(graph.vertices.map((vertex) => [vertex.id, made.node(vertex.id)])),
    edges: graph.edges.map((edge, number) => routeOf(made.node(edge.source), made.node(edge.target), made.edge(edge.source, edge.target, String(number)))),
    width: made.graph().width,
    height: made.graph().height,
  };
}

// An edge leaves one side of a vertex and enters the opposite side of the next one. It is horizontal beside its
// label, so it crosses no text.
function routeOf(source, target, edge) {
  const way = target.x < source.x ? -1 : 1;
  const half = (way * LABEL.width) / 2;
  const inner = edge.points.slice(1, -1).flatMap((point) => (point.x === edge.x ? [{ x: point.x - half, y: point.y }, { x: point.x + half, y: point.y }] : [point]));
  const points = [{ x: source.x + (way * WIDTH) / 2, y: source.y }, ...inner, { x: target.x - (way * WIDTH) / 2, y: target.y }];
  const bends = points.slice(1).map((point, place) => {
    const before = points[place];
    const middle = (before.x + point.x) / 2;
    return before.y === point.y ? `L${point.x} ${point.y}` : `C${middle} ${before.y} ${middle} ${point.y} ${point.x} ${point.y}`;
  });
  return { path: `M${points[0].x} ${points[0].y}${bends.join("")}`, x: edge.x, y: edge.y };
}
