// Map of nodes on a canvas. A cell fills by utilisation from its bottom, or with names from its left; only cells that changed are
// drawn again.

import { Component } from '../vendor/preact-11.2.0.mjs';
import { html } from '../elements.mjs';
import { printable } from '../text.mjs';
import { layOut, neighbour, nodeAt } from './node_layout.mjs';

const STEPS = 5;
const CORDONED = 1;
const NOT_READY = 2;

/** Return the flags of all nodes: 1 for unschedulable, 2 for not ready. */
export function flagsOf(doc) {
  const flags = new Uint8Array(doc.names.length);
  for (const node of doc.unschedulable) flags[node] |= CORDONED;
  for (const node of doc.notReady) flags[node] |= NOT_READY;
  return flags;
}

/** Properties: doc, resource, room (Map of node to number of pods, or null), marked (Set of nodes), selected, onSelect, onPoint, theme, label. */
export class NodeMap extends Component {
  constructor(props) {
    super(props);
    this.drawn = new Map();
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return nodeAt(this.layout, event.clientX - box.left, event.clientY - box.top);
    };
    this.press = (event) => {
      const node = at(event);
      if (node >= 0 && node !== this.props.selected) this.props.onSelect(node);
    };
    this.pointer = (event) => {
      const { onPoint } = this.props;
      if (!onPoint) this.press(event);
      else onPoint(at(event));
    };
    this.leave = () => this.props.onPoint?.(-1);
    this.key = (event) => {
      if (!/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) return;
      event.preventDefault();
      const node = neighbour(this.layout, this.props.selected, event.key);
      if (node >= 0) this.props.onSelect(node);
    };
  }

  componentDidMount() {
    this.observer = new ResizeObserver(() => this.draw(true));
    this.observer.observe(this.box);
    this.draw(true);
  }

  componentWillUnmount() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }

  componentDidUpdate(before) {
    const { doc, theme } = this.props;
    const isNew = doc.names !== before.doc.names || doc.zones !== before.doc.zones || theme !== before.theme;
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.draw(isNew));
  }

  draw(isNew) {
    const { doc, resource, room, marked, selected } = this.props;
    const width = Math.floor(this.box.clientWidth);
    if (!width) return;
    if (isNew || !this.layout) {
      this.layout = layOut(doc.zones, doc.names.length, width);
      this.resize(width);
      this.labels();
    }
    const used = doc.used[resource] ?? [];
    const flags = flagsOf(doc);
    // The selected node is the last one, because its outline reaches into the gaps between cells.
    for (const node of selected < 0 ? this.layout.order : [...this.layout.order, selected]) {
      const level = used[node] ?? -1;
      const fits = room ? (room.get(node) ?? 0) > 0 : Boolean(marked?.has(node));
      const key = (Math.max(-1, level) + 1) * 64 + flags[node] * 16 + (fits ? 4 : 0) + (room ? 2 : 0) + (node === selected ? 1 : 0);
      if (node === selected) this.drawn.delete(node);
      if (this.drawn.get(node) === key) continue;
      this.drawn.set(node, key);
      this.cell(node, level, flags[node], fits, room !== null, node === selected);
    }
  }

  resize(width) {
    const scale = globalThis.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = this.layout.height * scale;
    this.canvas.style.height = `${this.layout.height}px`;
    this.pen = this.canvas.getContext('2d');
    this.pen.scale(scale, scale);
    this.drawn.clear();
    const style = getComputedStyle(this.box);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.colours = {
      ink: colour('--ink'), quiet: colour('--quiet'), paper: colour('--surface'), track: colour('--cell'), edge: colour('--cell-edge'),
      ring: colour('--accent'), mark: colour('--mark'), steps: Array.from({ length: STEPS }, (_, at) => colour(`--load-${at + 1}`)),
      font: style.fontFamily,
    };
  }

  labels() {
    const { pen, colours } = this;
    for (const label of this.layout.labels) {
      pen.font = `${label.isZone ? '600 12px' : '11px'} ${colours.font}`;
      pen.fillStyle = label.isZone ? colours.ink : colours.quiet;
      pen.fillText(cut(pen, printable(label.text), label.width), label.x, label.y);
    }
  }

  cell(node, level, flags, fits, isFiltered, isSelected) {
    const { pen, colours } = this;
    const { isNamed, cellWidth: wide, cellHeight: high } = this.layout;
    const x = this.layout.x[node];
    const y = this.layout.y[node];
    // Below the bar of a wide cell is its name.
    const bar = isNamed ? 9 : high;
    pen.fillStyle = colours.paper;
    pen.fillRect(x - 2, y - 2, wide + 4, high + 4);
    pen.globalAlpha = isFiltered && !fits ? 0.35 : 1;
    pen.fillStyle = level < 0 ? colours.paper : colours.track;
    pen.fillRect(x, y, wide, bar);
    if (level > 0) {
      const share = Math.min(1, level / 1000);
      pen.fillStyle = colours.steps[Math.min(STEPS - 1, Math.floor(share * STEPS))];
      if (isNamed) {
        pen.fillRect(x, y, Math.max(1, Math.round(wide * share)), bar);
      } else {
        const height = Math.max(1, Math.round(high * share));
        pen.fillRect(x, y + high - height, wide, height);
      }
    }
    if (level < 0) outline(pen, colours.edge, x + 0.5, y + 0.5, wide - 1, bar - 1, 1);
    if (flags) this.mark(x, y, isNamed ? bar + 2 : wide, bar, flags);
    if (isNamed) {
      pen.font = `11px ${colours.font}`;
      pen.fillStyle = colours.ink;
      pen.fillText(cutStart(pen, printable(this.props.doc.names[node]), wide - 4), x + 2, y + high - 4);
    }
    pen.globalAlpha = 1;
    // A second line in the colour of the panel separates the ring from a dark cell.
    if (fits && wide > 12) outline(pen, colours.paper, x + 2, y + 2, wide - 4, high - 4, 1);
    if (fits) outline(pen, colours.ring, x + 0.5, y + 0.5, wide - 1, high - 1, wide > 12 ? 2 : 1);
    if (isSelected) outline(pen, colours.ink, x - 0.5, y - 0.5, wide + 1, high + 1, 1.5);
  }

  /** Draw one diagonal for unschedulable, two for not ready. */
  mark(x, y, wide, high, flags) {
    const { pen, colours } = this;
    pen.beginPath();
    pen.moveTo(x, y + high);
    pen.lineTo(x + wide, y);
    if (flags & NOT_READY) {
      pen.moveTo(x, y);
      pen.lineTo(x + wide, y + high);
    }
    // An edge in the colour of the panel, because the mark may lie on any step.
    for (const [colour, width] of [[colours.paper, 3], [colours.mark, wide > 12 ? 2 : 1.25]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  render({ label }) {
    return html`<div class="map" tabindex="0" role="group" aria-label=${label} aria-describedby="node-keys" onKeyDown=${this.key}
      ref=${(box) => { this.box = box; }}>
      <canvas aria-hidden="true" onPointerMove=${this.pointer} onPointerDown=${this.press} onPointerLeave=${this.leave}
        ref=${(canvas) => { this.canvas = canvas; }}></canvas>
    </div>`;
  }
}

function outline(pen, colour, x, y, wide, high, width) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(x, y, wide, high);
}

/** Return a name without its beginning if it is too wide: names of nodes differ at their ends. */
function cutStart(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let from = 1;
  while (from < text.length - 1 && pen.measureText(`…${text.slice(from)}`).width > width) from += 1;
  return `…${text.slice(from)}`;
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}
