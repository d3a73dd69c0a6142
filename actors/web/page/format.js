// Numbers, durations and times as text.

export const DASH = "–";

export function count(value) {
  if (value === null || value === undefined) return DASH;
  if (Math.abs(value) < 10_000) return Number.isInteger(value) ? value.toLocaleString("en") : value.toFixed(value < 10 ? 1 : 0);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return String(value);
}

export const rate = (value) => (value === null || value === undefined ? DASH : `${count(value)}/s`);

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  for (const [size, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${value} B`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.floor(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  return `${minutes} min ${whole % 60} s`;
}

export const share = (value) => (value === null || value === undefined ? DASH : `${Math.round(value * 100)} %`);

// Shares of one whole as whole percents that add up to 100: the rest goes to the largest remainders.
export function percents(shares) {
  const found = shares.map((share) => Math.floor(share * 100 + 1e-9));
  const missing = Math.round(shares.reduce((sum, share) => sum + share, 0) * 100) - found.reduce((sum, each) => sum + each, 0);
  const order = shares.map((share, place) => [found[place] - share * 100, place]).sort((a, b) => a[0] - b[0]);
  for (const [, place] of order.slice(0, missing)) found[place] += 1;
  return found;
}

// All times are on one clock: 24 hours, in the time zone of this browser, which the head of the page names.
const two = (number) => String(number).padStart(2, "0");
const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const timeOf = (at) => `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;

export const today = () => dayOf(new Date());

// The name of the time zone, and its present offset from UTC.
export function zone() {
  const ahead = -new Date().getTimezoneOffset();
  const size = Math.abs(ahead);
  const offset = ahead ? `${ahead < 0 ? "−" : "+"}${Math.floor(size / 60)}${size % 60 ? `:${two(size % 60)}` : ""}` : "";
  return { name: Intl.DateTimeFormat().resolvedOptions().timeZone, offset: `UTC${offset}` };
}

// Date and time; only the time if the date is today.
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return DASH;
  const at = new Date(seconds * 1000);
  return dayOf(at) === today() ? timeOf(at) : `${dayOf(at)} ${timeOf(at)}`;
}

// The time of a mark on an axis.
export const clock = (seconds, withSeconds) => timeOf(new Date(seconds * 1000)).slice(0, withSeconds ? 8 : 5);

// Day and time, with milliseconds, of a time in ISO 8601.
export function logged(text) {
  const at = new Date(text);
  return { day: dayOf(at), time: `${timeOf(at)}.${String(at.getMilliseconds()).padStart(3, "0")}` };
}

// Text for event time in microseconds; the end of event time is beyond all dates.
export function watermark(value) {
  if (value === null || value === undefined) return DASH;
  if (value > 8.64e18 / 1e3) return "end of data";
  const at = new Date(value / 1000);
  return Number.isNaN(at.getTime()) ? String(value) : `${dayOf(at)} ${timeOf(at)}`;
}

// A job's id is its name and 32 digits; the first 8 digits suffice to tell jobs apart.
export const shortId = (id) => id.replace(/-([0-9a-f]{8})[0-9a-f]{24}$/, "-$1…");

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Cuts the front, because the end has the line number.
export const cutFront = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);

// The address of the view of a vertex's subtasks.
export const subtasksOf = (job, vertex) => `#/jobs/${job}/subtasks/${encodeURIComponent(vertex)}`;

// The same address with one subtask marked.
export const subtaskOf = (job, { vertex, subtask }) => `${subtasksOf(job, vertex)}/${subtask}`;

export const fileLine = (place) => (place ? `${place.file.split("/").pop()}:${place.line}` : "");

// The class of a vertex for its colour: `blocked` (back-pressured), `busy` or `calm`; `unknown` without rates.
export function load(vertex) {
  if ((vertex?.busy_max ?? null) === null) return "unknown";
  if ((vertex.backpressured_max ?? 0) > 0.5) return "blocked";
  return vertex.busy_max > 0.8 ? "busy" : "calm";
}
