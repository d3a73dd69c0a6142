// Moves and zooms a drawing in its frame: by mouse, wheel, fingers and keys.

import { useEffect, useRef, useState } from "./vendor/htm-preact.js";

const LEAST = 0.05;
const MOST = 3;
const READABLE = 0.85; // text of 13 pixels then has 11
const STEP = 60; // pixels of an arrow key
const CLICK = 4; // pixels that a mouse may move in a click
const EDGE = 12; // pixels between a vertex that has the focus and the frame
const KEYS = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
const ZOOMS = { "+": 1.25, "=": 1.25, "-": 0.8 };

const between = (touches) => {
  const [a, b] = touches;
  return { apart: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY), x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2 };
};

// The position along one axis: centred if the drawing fits, else at its beginning.
const placed = (room, size) => Math.max(0, (room - size) / 2);

export function useMoves(frame, size) {
  const [view, setView] = useState({ x: 0, y: 0, zoom: 1 });
  const drag = useRef(null);

  const show = (least) => {
    const { clientWidth, clientHeight } = frame.current;
    const zoom = Math.max(least, Math.min(1, clientWidth / size.width, clientHeight / size.height));
    setView({ zoom, x: placed(clientWidth, size.width * zoom), y: placed(clientHeight, size.height * zoom) });
  };
  const moveBy = (x, y) => setView((before) => ({ ...before, x: before.x + x, y: before.y + y }));
  // The point `at` keeps its place in the frame.
  const zoomBy = (factor, at) => setView((before) => {
    const zoom = Math.min(MOST, Math.max(LEAST, before.zoom * factor));
    const { x, y } = at ?? { x: frame.current.clientWidth / 2, y: frame.current.clientHeight / 2 };
    return { zoom, x: x - ((x - before.x) * zoom) / before.zoom, y: y - ((y - before.y) * zoom) / before.zoom };
  });

  useEffect(() => show(READABLE), [size]);
  useEffect(() => {
    const element = frame.current;
    let fingers = null;
    const inFrame = ({ x, y }) => {
      const box = element.getBoundingClientRect();
      return { x: x - box.left, y: y - box.top };
    };
    const wheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, inFrame({ x: event.clientX, y: event.clientY }));
    };
    const pinched = (event) => {
      if (event.touches.length !== 2) {
        fingers = null;
        return;
      }
      event.preventDefault();
      const now = between(event.touches);
      if (fingers) {
        moveBy(now.x - fingers.x, now.y - fingers.y);
        zoomBy(now.apart / fingers.apart, inFrame(now));
      }
      fingers = now;
      drag.current = null;
    };
    // Preact would make passive listeners, which could not keep the page from scrolling.
    const listeners = { wheel, touchstart: pinched, touchmove: pinched, touchend: pinched };
    for (const [name, heard] of Object.entries(listeners)) element.addEventListener(name, heard, { passive: false });
    return () => {
      for (const [name, heard] of Object.entries(listeners)) element.removeEventListener(name, heard);
    };
  }, []);

  const handlers = {
    onPointerDown: (event) => {
      drag.current = event.button === 0 ? { x: event.clientX, y: event.clientY, isMove: false } : null;
    },
    onPointerMove: (event) => {
      const from = drag.current;
      if (!from || !event.buttons) return;
      if (!from.isMove && Math.hypot(event.clientX - from.x, event.clientY - from.y) < CLICK) return;
      if (!from.isMove) frame.current.setPointerCapture(event.pointerId);
      moveBy(event.clientX - from.x, event.clientY - from.y);
      drag.current = { x: event.clientX, y: event.clientY, isMove: true };
    },
    onClickCapture: (event) => {
      if (drag.current?.isMove) event.preventDefault();
      drag.current = null;
    },
    onDragStart: (event) => event.preventDefault(), // of a vertex as a link
    onKeyDown: (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (KEYS[event.key]) moveBy(...KEYS[event.key]);
      else if (ZOOMS[event.key]) zoomBy(ZOOMS[event.key]);
      else return;
      event.preventDefault();
    },
    // Moves a vertex into view when the Tab key reaches it.
    onfocusin: (event) => {
      if (event.target === frame.current || !event.target.matches(":focus-visible")) return;
      const [box, card] = [frame.current.getBoundingClientRect(), event.target.getBoundingClientRect()];
      const inside = (low, high, least, most) => (low < least ? least - low : high > most ? Math.max(least - low, most - high) : 0);
      moveBy(inside(card.left, card.right, box.left + EDGE, box.right - EDGE), inside(card.top, card.bottom, box.top + EDGE, box.bottom - EDGE));
    },
  };
  return { view, zoomBy, fit: () => show(LEAST), handlers };
}
