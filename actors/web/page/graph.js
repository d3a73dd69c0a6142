// The job graph: laid out once for each shape of it; only numbers change after that.

import { Graph as Layout, layout as place } from "./vendor/dagre.js";
import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { cut, cutFront, fileLine, load, rate, share, watermark } from "./format.js";

const WIDTH = 250;
const LINE = 17;
const SHOWN = 4; // operators of a chain that a card names

const heightOf = (vertex) => 84 + LINE * (Math.min(vertex.operators.length, SHOWN) + (vertex.operators.length > SHOWN ? 1 : 0));

function arrange(graph) {
  const made = new Layout({ multigraph: true });
  made.setGraph({ rankdir: "LR", nodesep: 28, ranksep: 90, marginx: 12, marginy: 12 });
  made.setDefaultEdgeLabel(() => ({}));
  for (const vertex of graph.vertices) made.setNode(vertex.id, { width: WIDTH, height: heightOf(vertex) });
  graph.edges.forEach((edge, number) => made.setEdge(edge.source, edge.target, { width: 76, height: 30, labelpos: "c" }, String(number)));
  place(made);
  return {
    vertices: Object.fromEntries(graph.vertices.map((vertex) => [vertex.id, made.node(vertex.id)])),
    edges: graph.edges.map((edge, number) => made.edge(edge.source, edge.target, String(number))),
    width: made.graph().width,
    height: made.graph().height,
  };
}

const pathOf = (points) => {
  const [first, ...others] = points;
  const middle = others.slice(0, -1).map((point, number) => {
    const next = others[number + 1];
    return `Q${point.x} ${point.y} ${(point.x + next.x) / 2} ${(point.y + next.y) / 2}`;
  });
  const last = points[points.length - 1];
  return `M${first.x} ${first.y}${middle.join("")}L${last.x} ${last.y}`;
};

function Card({ vertex, summary, at, job }) {
  const height = heightOf(vertex);
  const top = at.y - height / 2;
  const operators = vertex.operators.slice(0, SHOWN);
  const more = vertex.operators.length - operators.length;
  const below = 44 + LINE * (operators.length + (more ? 1 : 0));
  const target = `#/jobs/${job}/subtasks/${encodeURIComponent(vertex.id)}`;
  const label = `${vertex.id}, ${vertex.parallelism} subtasks, busy ${share(summary?.busy_max)}, back-pressured ${share(summary?.backpressured_max)}, ${rate(summary?.records_in)} in`;
  return html`<a href=${target} class="card ${load(summary)}" aria-label=${label} data-vertex=${vertex.id}>
    <g transform="translate(${at.x - WIDTH / 2} ${top})">
      <rect class="body" width=${WIDTH} height=${height} rx="8" />
      <rect class="load" width="5" height=${height - 16} x="0" y="8" rx="2" />
      <text class="name" x="14" y="22">${cut(vertex.id, 24)}</text>
      <text class="parallelism" x=${WIDTH - 12} y="22" text-anchor="end">× ${vertex.parallelism}</text>
      ${operators.map((operator, number) => html`<text key=${operator.id} class="operator" x="14" y=${42 + LINE * number}>${cut(operator.name, 22)}<title>${operator.name}${operator.defined_at ? `\n${operator.defined_at.file}:${operator.defined_at.line}` : ""}</title></text>
        <text key="${operator.id} line" class="line" x=${WIDTH - 12} y=${42 + LINE * number} text-anchor="end">${cutFront(fileLine(operator.defined_at), 15)}</text>`)}
      ${more > 0 && html`<text class="line" x="14" y=${42 + LINE * operators.length}>and ${more} more</text>`}
      <line class="rule" x1="14" x2=${WIDTH - 12} y1=${below - 10} y2=${below - 10} />
      <text class="number" x="14" y=${below + 6}>busy ${share(summary?.busy_max)}</text>
      <text class="number" x=${WIDTH - 12} y=${below + 6} text-anchor="end">blocked ${share(summary?.backpressured_max)}</text>
      <text class="number" x="14" y=${below + 24}>${rate(summary?.records_in)} in</text>
      <text class="line" x=${WIDTH - 12} y=${below + 24} text-anchor="end">${summary?.watermark === null || summary?.watermark === undefined ? "" : watermark(summary.watermark).slice(-19)}</text>
    </g>
  </a>`;
}

function Edge({ edge, summary, points }) {
  const middle = points.points[Math.floor(points.points.length / 2)];
  const full = (summary?.fill_max ?? 0) > 0.8;
  return html`<g class="edge ${full ? "full" : ""}">
    <path d=${pathOf(points.points)} marker-end="url(#arrow)"><title>${edge.source} to ${edge.target}: ${edge.partitioning}${edge.key ? ` by ${edge.key}` : ""}</title></path>
    <text x=${middle.x} y=${middle.y - 9} text-anchor="middle">${cut(edge.side_output ?? edge.partitioning.replace("_", " "), 14)}</text>
    <text x=${middle.x} y=${middle.y + 18} text-anchor="middle">${summary?.fill === null || summary?.fill === undefined ? "" : `${share(summary.fill)} full`}</text>
  </g>`;
}

export function Graph({ report }) {
  const shape = JSON.stringify([report.graph.vertices.map((vertex) => [vertex.id, vertex.operators.length]), report.graph.edges.map((edge) => [edge.source, edge.target])]);
  const made = useMemo(() => arrange(report.graph), [shape]);
  const [view, setView] = useState({ x: 0, y: 0, zoom: 1 });
  const frame = useRef(null);
  const dragged = useRef(null);

  const fit = () => {
    const { clientWidth, clientHeight } = frame.current;
    const zoom = Math.min(1, clientWidth / made.width, clientHeight / made.height);
    setView({ zoom, x: (clientWidth - made.width * zoom) / 2, y: (clientHeight - made.height * zoom) / 2 });
  };
  const zoomBy = (factor, at) => setView((before) => {
    const zoom = Math.min(3, Math.max(0.05, before.zoom * factor));
    const { x, y } = at ?? { x: frame.current.clientWidth / 2, y: frame.current.clientHeight / 2 };
    return { zoom, x: x - ((x - before.x) * zoom) / before.zoom, y: y - ((y - before.y) * zoom) / before.zoom };
  });
  useEffect(fit, [shape]);
  useEffect(() => {
    // Preact would make a passive listener, which could not keep the page from scrolling.
    const wheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = frame.current.getBoundingClientRect();
      zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, { x: event.clientX - box.left, y: event.clientY - box.top });
    };
    frame.current.addEventListener("wheel", wheel, { passive: false });
    return () => frame.current?.removeEventListener("wheel", wheel);
  }, []);

  const summaries = Object.fromEntries(report.vertices.map((vertex) => [vertex.id, vertex]));
  if (report.graph.vertices.length === 0) return html`<p class="notice">The graph is not known yet.</p>`;
  return html`<section class="graph" aria-label="Job graph">
    <div class="tools">
      <button onClick=${() => zoomBy(1.25)} aria-label="Zoom in">+</button>
      <button onClick=${() => zoomBy(0.8)} aria-label="Zoom out">−</button>
      <button onClick=${fit}>Fit</button>
      <span class="faint wide">Drag to move, Ctrl and the wheel to zoom</span>
    </div>
    <div class="frame" ref=${frame} style=${{ height: `${Math.min(560, Math.max(200, made.height + 24))}px` }}
      onPointerDown=${(event) => { dragged.current = { x: event.clientX - view.x, y: event.clientY - view.y }; }}
      onPointerMove=${(event) => { if (dragged.current && event.buttons) setView((before) => ({ ...before, x: event.clientX - dragged.current.x, y: event.clientY - dragged.current.y })); }}
      onPointerUp=${() => { dragged.current = null; }}>
      <svg width="100%" height="100%" role="group" aria-label="${report.graph.vertices.length} vertices">
        <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" /></marker></defs>
        <g transform="translate(${view.x} ${view.y}) scale(${view.zoom})">
          ${report.graph.edges.map((edge, number) => html`<${Edge} key=${number} edge=${edge} summary=${report.edges[number]} points=${made.edges[number]} />`)}
          ${report.graph.vertices.map((vertex) => html`<${Card} key=${vertex.id} vertex=${vertex} summary=${summaries[vertex.id]} at=${made.vertices[vertex.id]} job=${report.job_id} />`)}
        </g>
      </svg>
    </div>
  </section>`;
}
