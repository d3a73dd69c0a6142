// The job graph: laid out once for each shape; after that only numbers change. On a phone it is a list.

import { html, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { cut, cutFront, fileLine, load, percents, rate, share, subtasksOf, today, watermark } from "./format.js";
import { EdgeRecords } from "./edge_records.js";
import { LINE, SHOWN, WIDTH, arrange, heightOf } from "./graph_layout.js";
import { useMoves } from "./graph_moves.js";
import { useNarrow } from "./media.js";
import { Notice } from "./parts.js";

const inputOf = (edge) => (edge.input_index ? `${edge.input_index + 1}: ` : "");
const nameOf = (edge) => `${inputOf(edge)}${edge.side_output ?? edge.partitioning.replaceAll("_", " ")}`;
const wholeNameOf = (edge) => `${edge.source} to ${edge.target}: ${inputOf(edge)}${edge.partitioning.replaceAll("_", " ")}${edge.key ? ` by ${edge.key}` : ""}`;
const fillOf = (summary) => ((summary?.fill ?? null) === null ? "" : `${share(summary.fill)} full`);
const isFull = (summary) => (summary?.fill_max ?? 0) > 0.8;
const reachedBy = (summary) => ((summary?.watermark ?? null) === null ? "" : watermark(summary.watermark));

// A card has no room for the date together with its name.
function eventTime(summary) {
  const [day, time] = reachedBy(summary).split(" ");
  return time && day === today() ? `event time ${time}` : reachedBy(summary);
}

// Shares of different subtasks do not add up: each is the highest one.
const highest = (vertex, summary) => (vertex.parallelism > 1 ? { busy: `busy max ${share(summary.busy_max)}`, blocked: `blocked max ${share(summary.backpressured_max)}` } : oneSubtask(summary));

function oneSubtask(summary) {
  const [busy, blocked] = percents([summary.busy_max, summary.backpressured_max, summary.idle]);
  return { busy: `busy ${busy} %`, blocked: `blocked ${blocked} %` };
}

const inWords = (vertex, summary) => `${vertex.id}, ${vertex.parallelism} subtasks${load(summary) === "unknown" ? "" : `, busy ${share(summary.busy_max)}, back-pressured ${share(summary.backpressured_max)}, ${rate(summary.records_in)} in`}`;

function Card({ vertex, summary, at, job, limits }) {
  const height = heightOf(vertex);
  const operators = vertex.operators.slice(0, SHOWN);
  const more = vertex.operators.length - operators.length;
  const below = 50 + LINE * (operators.length + (more ? 1 : 0));
  const right = WIDTH - 12;
  const state = load(summary);
  return html`<a href=${subtasksOf(job, vertex.id)} class="card ${state} ${limits ? "limits" : ""}" aria-label="${inWords(vertex, summary)}${limits ? ", the bottleneck" : ""}" data-vertex=${vertex.id}>
    <g transform="translate(${at.x - WIDTH / 2} ${at.y - height / 2})">
      <rect class="body" width=${WIDTH} height=${height} rx="8" />
      <rect class="load" width="5" height=${height - 16} x="0" y="8" rx="2" />
      <text class="name" x="14" y="24">${cut(vertex.id, 24)}<title>${vertex.id}</title></text>
      <text class="parallelism" x=${right} y="24" text-anchor="end">× ${vertex.parallelism}</text>
      ${operators.map((operator, number) => html`<text key=${operator.id} class="operator" x="14" y=${46 + LINE * number}>${cut(operator.name, 16)}<title>${operator.name}${operator.defined_at ? `\n${operator.defined_at.file}:${operator.defined_at.line}` : ""}</title></text>
        <text key="${operator.id} line" class="line" x=${right} y=${46 + LINE * number} text-anchor="end">${cutFront(fileLine(operator.defined_at), 15)}</text>`)}
      ${more > 0 && html`<text class="line" x="14" y=${46 + LINE * operators.length}>and ${more} more</text>`}
      <line class="rule" x1="14" x2=${right} y1=${below - 12} y2=${below - 12} />
      <text class="number" x="14" y=${below + 7}>${state === "unknown" ? "" : highest(vertex, summary).busy}</text>
      <text class="number" x=${right} y=${below + 7} text-anchor="end">${state === "unknown" ? "no rates" : highest(vertex, summary).blocked}</text>
      <text class="number" x="14" y=${below + 28}>${state === "unknown" ? "" : `${rate(summary.records_in)} in`}</text>
      <text class="line" x=${right} y=${below + 28} text-anchor="end">${eventTime(summary)}<title>event time (watermark): ${reachedBy(summary)}</title></text>
    </g>
  </a>`;
}

const spoken = (edge) => `Records from ${edge.source} to ${edge.target}`;

// The area of an edge that can be clicked. The Tab key reaches these areas after the vertices.
function Reach({ edge, at, onPick }) {
  const pressed = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onPick();
  };
  const clicked = (event) => event.defaultPrevented || onPick(); // a drag is no click
  return html`<g class="reach" role="button" tabindex="0" aria-label=${spoken(edge)} onClick=${clicked} onKeyDown=${pressed}>
    <path d=${at.path}><title>${wholeNameOf(edge)}</title></path><rect x=${at.x - 46} y=${at.y - 22} width="92" height="44" rx="6" />
  </g>`;
}

const Edge = ({ edge, summary, at }) => html`<g class="edge ${isFull(summary) ? "full" : ""}">
  <path d=${at.path} marker-end="url(#${isFull(summary) ? "arrow-full" : "arrow"})"><title>${wholeNameOf(edge)}</title></path>
  <text x=${at.x} y=${at.y - 7} text-anchor="middle">${cut(nameOf(edge), 14)}</text>
  <text x=${at.x} y=${at.y + 17} text-anchor="middle">${fillOf(summary)}</text>
</g>`;

const Arrow = ({ id }) => html`<marker id=${id} viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="12" markerHeight="12" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>`;

function Drawing({ report, summaries, fills, bottleneck, pick }) {
  const shape = JSON.stringify([report.graph.vertices.map((vertex) => [vertex.id, vertex.operators.length]), report.graph.edges.map((edge) => [edge.source, edge.target])]);
  const made = useMemo(() => arrange(report.graph), [shape]);
  const frame = useRef(null);
  const { view, zoomBy, fit, handlers } = useMoves(frame, made);
  return html`<section class="graph" aria-label="Job graph">
    <div class="tools">
      <button type="button" onClick=${() => zoomBy(1.25)} aria-label="Zoom in">+</button>
      <button type="button" onClick=${() => zoomBy(0.8)} aria-label="Zoom out">−</button>
      <button type="button" onClick=${fit} title="Show the whole graph">Fit</button>
      <span class="faint">Drag or press arrow keys to move. Press + and −, pinch, or turn the wheel with Ctrl to zoom.${pick && " Click an edge to see what flows."}</span>
    </div>
    <div class="frame" ref=${frame} tabindex="0" role="group" aria-label="Vertices: ${report.graph.vertices.length}. Arrow keys move the graph, + and - zoom." style=${{ height: `${Math.min(560, Math.max(200, made.height + 24))}px` }} ...${handlers}>
      <svg width="100%" height="100%">
        <defs><${Arrow} id="arrow" /><${Arrow} id="arrow-full" /></defs>
        <g transform="translate(${view.x} ${view.y}) scale(${view.zoom})">
          ${report.graph.edges.map((edge, number) => html`<${Edge} key=${number} edge=${edge} summary=${fills[number]} at=${made.edges[number]} />`)}
          ${report.graph.vertices.map((vertex) => html`<${Card} key=${vertex.id} vertex=${vertex} summary=${summaries[vertex.id]} at=${made.vertices[vertex.id]} job=${report.job_id} limits=${vertex.id === bottleneck} />`)}
          ${pick && report.graph.edges.map((edge, number) => html`<${Reach} key="reach ${number}" edge=${edge} at=${made.edges[number]} onPick=${() => pick(number)} />`)}
        </g>
      </svg>
    </div>
  </section>`;
}

function Item({ vertex, summary, outputs, job, limits, pick }) {
  const state = load(summary);
  return html`<li class="card ${state} ${limits ? "limits" : ""}" data-vertex=${vertex.id}>
    <div class="head"><a href=${subtasksOf(job, vertex.id)}>${vertex.id}</a><span class="faint">× ${vertex.parallelism}</span></div>
    <ul class="plain">${vertex.operators.map((operator) => html`<li key=${operator.id}>${operator.name} <span class="faint">${fileLine(operator.defined_at)}</span></li>`)}</ul>
    ${state !== "unknown" && html`<div class="numbers"><span>${highest(vertex, summary).busy}</span><span>${highest(vertex, summary).blocked}</span><span>${rate(summary.records_in)} in</span></div>`}
    ${reachedBy(summary) && html`<div class="faint">event time ${reachedBy(summary)}</div>`}
    ${outputs.map(({ edge, place, summary: fill }) => html`<div key=${place} class="output ${isFull(fill) ? "warn" : "faint"}">→ ${edge.target}: ${nameOf(edge)}${fillOf(fill) && `, ${fillOf(fill)}`}${pick && html` <button type="button" class="link" aria-label=${spoken(edge)} onClick=${() => pick(place)}>records</button>`}</div>`)}
  </li>`;
}

function List({ report, summaries, fills, bottleneck, pick }) {
  const outputsOf = (vertex) => report.graph.edges.map((edge, place) => ({ edge, place, summary: fills[place] })).filter(({ edge }) => edge.source === vertex.id);
  return html`<ol class="vertices" aria-label="Job graph">${report.graph.vertices.map((vertex) => html`<${Item} key=${vertex.id} vertex=${vertex} summary=${summaries[vertex.id]} outputs=${outputsOf(vertex)} job=${report.job_id} limits=${vertex.id === bottleneck} pick=${pick} />`)}</ol>`;
}

export function Graph({ report, live, showsRecords }) {
  const isNarrow = useNarrow();
  const [place, pick] = useState(null);
  if (report.graph.vertices.length === 0) return html`<${Notice}>The graph is not known yet.<//>`;
  // A job that does not run has no rates, although its last report may have some.
  const summaries = Object.fromEntries(report.vertices.map((vertex) => [vertex.id, live ? vertex : { ...vertex, busy_max: null }]));
  return html`<${isNarrow ? List : Drawing} report=${report} summaries=${summaries} fills=${live ? report.edges : []} bottleneck=${live ? report.bottleneck?.vertex : null} pick=${showsRecords ? pick : null} />
    ${report.graph.edges[place] && html`<${EdgeRecords} job=${report.job_id} place=${place} edge=${report.graph.edges[place]} onClose=${() => pick(null)} />`}`;
}
