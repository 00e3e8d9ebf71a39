// Map of nodes on a canvas. A cell fills from its bottom by utilisation; only cells that changed are drawn again.

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

/** Properties: doc, resource, room (Map of node to number of pods, or null), marked (Set of nodes), selected, onSelect, theme, label. */
export class NodeMap extends Component {
  constructor(props) {
    super(props);
    this.drawn = new Map();
    this.pointer = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const node = nodeAt(this.layout, event.clientX - box.left, event.clientY - box.top);
      if (node >= 0 && node !== this.props.selected) this.props.onSelect(node);
    };
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
    const { size } = this.layout;
    const x = this.layout.x[node];
    const y = this.layout.y[node];
    pen.fillStyle = colours.paper;
    pen.fillRect(x - 1, y - 1, size + 2, size + 2);
    pen.globalAlpha = isFiltered && !fits ? 0.35 : 1;
    pen.fillStyle = level < 0 ? colours.paper : colours.track;
    pen.fillRect(x, y, size, size);
    if (level > 0) {
      const share = Math.min(1, level / 1000);
      const height = Math.max(1, Math.round(size * share));
      pen.fillStyle = colours.steps[Math.min(STEPS - 1, Math.floor(share * STEPS))];
      pen.fillRect(x, y + size - height, size, height);
    }
    if (level < 0) outline(pen, colours.edge, x + 0.5, y + 0.5, size - 1, 1);
    if (flags) this.mark(x, y, size, flags);
    pen.globalAlpha = 1;
    if (fits) outline(pen, colours.ring, x + 0.5, y + 0.5, size - 1, size > 12 ? 2 : 1);
    if (isSelected) outline(pen, colours.ink, x - 0.5, y - 0.5, size + 1, 1.5);
  }

  /** Draw one diagonal for unschedulable, two for not ready. */
  mark(x, y, size, flags) {
    const { pen, colours } = this;
    pen.beginPath();
    pen.moveTo(x, y + size);
    pen.lineTo(x + size, y);
    if (flags & NOT_READY) {
      pen.moveTo(x, y);
      pen.lineTo(x + size, y + size);
    }
    // An edge in the colour of the panel, because the mark may lie on any step.
    for (const [colour, width] of [[colours.paper, 3], [colours.mark, size > 12 ? 2 : 1.25]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.stroke();
    }
  }

  render({ label }) {
    return html`<div class="map" tabindex="0" role="group" aria-label=${label} aria-describedby="node-keys" onKeyDown=${this.key}
      ref=${(box) => { this.box = box; }}>
      <canvas aria-hidden="true" onPointerMove=${this.pointer} onPointerDown=${this.pointer}
        ref=${(canvas) => { this.canvas = canvas; }}></canvas>
    </div>`;
  }
}

function outline(pen, colour, x, y, size, width) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.strokeRect(x, y, size, size);
}

function cut(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && pen.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length)}…`;
}
