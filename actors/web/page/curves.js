// Curves over the last hour.

import uPlot from "./vendor/uplot.js";
import { html, useEffect, useRef } from "./vendor/htm-preact.js";
import { bytes, count, duration } from "./format.js";

const CURVES = [
  { title: "Records per second", unit: count, lines: [["in", "records_in"], ["out", "records_out"]] },
  { title: "Lag of event time", unit: duration, lines: [["lag", "lag"]] },
  { title: "Size of checkpoints", unit: bytes, lines: [["size", "checkpoint_bytes"]] },
  { title: "Duration of checkpoints", unit: duration, lines: [["duration", "checkpoint_seconds"]] },
];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function Curve({ title, unit, lines, samples }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = [samples.map((sample) => sample.at), ...lines.map(([, field]) => samples.map((sample) => sample[field]))];
  const isKnown = data.slice(1).some((line) => line.some((value) => value !== null));
  useEffect(() => {
    if (!isKnown) return undefined;
    const faint = { stroke: colour("--faint"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule"), width: 1 } };
    const options = {
      width: place.current.clientWidth,
      height: 150,
      cursor: { y: false },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [faint, { ...faint, size: 66, values: (_, marks) => marks.map((mark) => unit(mark)) }],
      series: [{ label: "at" }, ...lines.map(([label], number) => ({ label, stroke: colour(number ? "--second" : "--accent"), width: 1.5, spanGaps: true, points: { show: false }, value: (_, value) => unit(value) }))],
    };
    plot.current = new uPlot(options, data, place.current);
    const resized = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: 150 }));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [isKnown]);
  useEffect(() => plot.current?.setData(data));
  const last = lines.map(([label, field]) => `${label} ${unit([...samples].reverse().find((sample) => sample[field] !== null)?.[field])}`).join(", ");
  return html`<figure class="curve"><figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label="${title}: ${last}">${!isKnown && html`<span class="faint">nothing measured yet</span>`}</div>
  </figure>`;
}

export const Curves = ({ samples }) => html`<section class="curves" aria-label="Curves over the last hour">${CURVES.map((curve) => html`<${Curve} key=${curve.title} ...${curve} samples=${samples} />`)}</section>`;
