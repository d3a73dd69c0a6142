// A flame graph: functions as boxes, as wide as the share of the time in which they are on the stack.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { Elapsed, Notice, useAnswer } from "./parts.js";
import { cut, duration } from "./format.js";

const HEIGHT = 18;
const LEAST = 2; // pixels; a narrower box is left out
const NARROWEST = 320;
const LENGTHS = [3, 10, 30]; // seconds
const TYPES = { on_cpu: ["On-CPU", "Threads that wait are left out."], off_cpu: ["Off-CPU", "Only the task's thread, while it waits."], mixed: ["Mixed", "Only the task's thread, while it runs and while it waits."] };

// First path parts of frames that are not user code: Penstock, Ray, and Python's standard library.
const FOREIGN = new Set(
  `penstock actors bridge runtime ray default_worker setup_worker grpc
  __future__ _collections_abc _compression _markupbase _pydecimal _pyio _strptime _threading_local _weakrefset
  abc argparse array ast asyncio base64 bdb bisect bz2 calendar cmd code codecs codeop collections colorsys compileall
  concurrent configparser contextlib contextvars copy copyreg cProfile csv ctypes curses dataclasses datetime dbm decimal
  difflib dis doctest email encodings ensurepip enum filecmp fileinput fnmatch fractions ftplib functools genericpath
  getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http imaplib importlib inspect io ipaddress json
  keyword linecache locale logging lzma mailbox mimetypes modulefinder multiprocessing netrc ntpath numbers opcode operator
  optparse os pathlib pdb pickle pickletools pkgutil platform plistlib poplib posixpath pprint profile pstats pty py_compile
  pyclbr pydoc queue quopri random re reprlib rlcompleter runpy sched secrets selectors shelve shlex shutil signal site
  smtplib socket socketserver sqlite3 sre_compile sre_parse ssl stat statistics string stringprep struct subprocess symtable
  sysconfig tarfile tempfile textwrap this threading timeit token tokenize tomllib trace traceback tracemalloc types typing
  unittest urllib uuid venv warnings wave weakref webbrowser wsgiref xml xmlrpc zipapp zipfile zipimport zoneinfo`.split(/\s+/),
);

// Whether a frame such as `parse (job.py:7)` is of the user's program.
export function isOwn(frame) {
  const file = /\(([^()]*?)(?::\d+)?\)$/.exec(frame)?.[1];
  if (!file || file.startsWith("<frozen")) return false;
  if (/\/lib\/python\d[^/]*\/(?!(site|dist)-packages)/.test(file)) return false;
  const path = file.replace(/^.*\/(site|dist)-packages\//, "");
  const first = path.split("/")[0].replace(/\.pyx?$/, "");
  return !FOREIGN.has(first);
}

// The same stacks without foreign frames. A user's function that a foreign frame calls moves up to the next user frame.
export function ownCode(name, sources) {
  const found = new Map();
  const gather = (node) => {
    for (const child of node.children) {
      if (isOwn(child.name)) found.set(child.name, [...(found.get(child.name) ?? []), child]);
      else gather(child);
    }
  };
  sources.forEach(gather);
  const children = [...found].map(([own, nodes]) => ownCode(own, nodes)).sort((a, b) => b.value - a.value);
  return { name, value: sources.reduce((sum, node) => sum + node.value, 0), children };
}

// Stacks with a matching frame; each counts once, however deep.
const counted = (node, matches) => (matches(node.name) ? node.value : node.children.reduce((sum, child) => sum + counted(child, matches), 0));

function pathTo(node, wanted) {
  if (node === wanted) return [node];
  for (const child of node.children) {
    const path = pathTo(child, wanted);
    if (path) return [node, ...path];
  }
  return null;
}

function boxes(node, x, depth, scale, parent, into) {
  const width = node.value * scale;
  if (width < LEAST) return into;
  const place = into.push({ node, x, depth, width, parent }) - 1;
  let at = x;
  for (const child of node.children) {
    boxes(child, at, depth + 1, scale, place, into);
    at += child.value * scale;
  }
  return into;
}

// The box that is zoomed to and its callees, below its callers.
function laidOut(root, top, width) {
  const above = pathTo(root, top)?.slice(0, -1) ?? [];
  const into = above.map((node, depth) => ({ node, x: 0, depth, width, parent: depth - 1 }));
  return boxes(top, 0, above.length, width / Math.max(1, top.value), above.length - 1, into);
}

// The box that an arrow key leads to.
function neighbour(shown, place, key) {
  const here = shown[place];
  if (key === "ArrowUp") return here.parent;
  if (key === "ArrowDown") return shown.findIndex((box) => box.parent === place);
  const row = shown.map((_, number) => number).filter((number) => shown[number].depth === here.depth);
  return row[row.indexOf(place) + (key === "ArrowRight" ? 1 : -1)] ?? -1;
}

function Boxes({ root, top, setTop, matches, total }) {
  const frame = useRef(null);
  const [width, setWidth] = useState(900);
  const [at, setAt] = useState(0);
  const byKey = useRef(false);
  const shown = laidOut(root, top, width);
  const place = shown.findIndex((box) => box.node === top);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.max(NARROWEST, Math.floor(entry.contentRect.width))));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    setAt(place);
    if (byKey.current) frame.current.querySelectorAll(".flame")[place]?.focus();
    byKey.current = false;
  }, [top]);
  const zoom = (node) => setTop(node === root ? null : node);
  const pressed = (event) => {
    const number = Number(event.target.closest(".flame")?.dataset.box ?? 0);
    if (event.key === "Enter" || event.key === " ") {
      byKey.current = true;
      zoom(shown[number].node);
    } else if (event.key === "Escape" && top !== root) {
      byKey.current = true;
      setTop(null); // and the dialog around it stays open
    } else if (event.key.startsWith("Arrow")) {
      const next = neighbour(shown, number, event.key);
      if (next < 0) return;
      setAt(next);
      frame.current.querySelectorAll(".flame")[next].focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const depth = Math.max(...shown.map((box) => box.depth)) + 1;
  const current = Math.min(at, shown.length - 1);
  const share = (node) => `${((100 * node.value) / total).toFixed(1)} %`;
  return html`<div class="scroll" ref=${frame}>
    <svg class="flames" width=${width} height=${depth * HEIGHT} role="group" aria-label="Flame graph of ${total} stacks" onKeyDown=${pressed}>${shown.map((box, number) => html`
      <g key=${number} data-box=${number} role="button" tabindex=${number === current ? 0 : -1} aria-label="${box.node.name}: ${share(box.node)}" onClick=${() => zoom(box.node)}
        class="flame ${isOwn(box.node.name) ? "own" : "foreign"} ${matches?.(box.node.name) ? "found" : ""} ${number < place ? "above" : ""}">
        <rect x=${box.x} y=${box.depth * HEIGHT} width=${Math.max(1, box.width - 1)} height=${HEIGHT - 1} />
        <text x=${box.x + 4} y=${box.depth * HEIGHT + 13}>${box.width > 30 ? cut(`${share(box.node)} ${box.node.name}`, Math.floor((box.width - 6) / 6.5)) : ""}</text>
        <title>${box.node.name}: ${share(box.node)}, ${box.node.value} of ${total} stacks</title>
      </g>`)}
    </svg></div>`;
}

// `ask` takes samples for a number of seconds, of one of `TYPES`.
export function FlameGraph({ ask }) {
  const [wanted, setWanted] = useState({ seconds: LENGTHS[0], type: "on_cpu", since: Date.now() });
  const { answer, error, waits } = useAnswer(async () => ({ ...(await ask(wanted.seconds, wanted.type)), took: (Date.now() - wanted.since) / 1000 }), [wanted]);
  const [zoomed, setZoomed] = useState(null); // a node, and the root of its tree
  const [onlyOwn, setOnlyOwn] = useState(false);
  const [text, setText] = useState("");
  const own = useRef({ of: null, root: null });
  if (answer && own.current.of !== answer.root) own.current = { of: answer.root, root: ownCode(answer.root.name, [answer.root]) };
  const root = onlyOwn ? own.current.root : answer?.root;
  const top = zoomed?.root === root ? zoomed?.node : null;
  const sought = text.trim().toLowerCase();
  const matches = sought ? (name) => name.toLowerCase().includes(sought) : null;
  const percent = (value) => `${((100 * value) / Math.max(1, answer.root.value)).toFixed(1)} %`;
  return html`<form class="filter" onSubmit=${(event) => event.preventDefault()}>
      <label>Threads <select value=${wanted.type} disabled=${waits} onChange=${(event) => setWanted({ ...wanted, type: event.target.value, since: Date.now() })}>${Object.entries(TYPES).map(([type, [name]]) => html`<option key=${type} value=${type}>${name}</option>`)}</select></label>
      <label>Sample for <select value=${wanted.seconds} disabled=${waits} onChange=${(event) => setWanted({ ...wanted, seconds: Number(event.target.value), since: Date.now() })}>${LENGTHS.map((each) => html`<option key=${each} value=${each}>${each} s</option>`)}</select></label>
      <button type="button" disabled=${waits} onClick=${() => setWanted({ ...wanted, since: Date.now() })}>Take again</button>
      ${answer && html`<label><input type="checkbox" checked=${onlyOwn} onChange=${(event) => setOnlyOwn(event.target.checked)} /> User code only</label>
      <label>Search <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
      <button type="button" disabled=${!top} onClick=${() => setZoomed(null)}>Show all</button>`}
    </form>
    ${waits && html`<${Notice}><span class="spinner" aria-hidden="true"></span> py-spy takes samples for ${wanted.seconds} s, and needs some more seconds to start: <${Elapsed} since=${wanted.since} /> so far.<//>`}
    ${error && !waits && html`<${Notice} kind="error">${error.message}<//>`}
    ${answer && html`<p class="faint" role="status">${answer.root.value} stacks of ${duration(answer.seconds)}; the answer took ${duration(answer.took)}. ${percent(counted(answer.root, isOwn))} have <span class="swatch own"></span> user code; <span class="swatch foreign"></span> is Penstock, Ray and Python. ${TYPES[answer.type][1]}${matches && html` <strong>${percent(counted(answer.root, matches))} match.</strong>`}</p>
    <${Boxes} root=${root} top=${top ?? root} setTop=${(node) => setZoomed(node && { root, node })} matches=${matches} total=${Math.max(1, answer.root.value)} />
    <p class="faint">Click a box, or press Enter on it, to zoom. Arrow keys move; Escape shows all.</p>`}`;
}
