// Places of nodes on the map: zones below each other, racks as blocks from left to right, nodes as cells of a block.

const LABEL = 16;
const GAP = 10;
const LEAST = 72;
// Room for the outline of a cell at the edge.
const EDGE = 2;

// Up to this number of nodes, cells are wide and have names.
const NAMED = 120;
const NAMED_WIDTH = 108;
const NAMED_HEIGHT = 32;

/** Return width and height of a cell with its gap. */
function cellSize(nodes, width) {
  if (nodes > 1500) return width < 500 ? [7, 7] : [10, 10];
  if (nodes > 300) return width < 500 ? [10, 10] : [14, 14];
  if (nodes > NAMED) return [18, 18];
  // As many columns as fit, which share the whole width.
  return [Math.floor(width / Math.max(1, Math.floor(width / NAMED_WIDTH))), NAMED_HEIGHT];
}

/**
 * Return {isNamed, cellWidth, cellHeight, height, labels, x, y, order} for a width in pixels.
 *
 * labels: [{text, x, y, width, isZone}]. x, y: pixels of each node's cell by index, -1 for a node in no rack.
 * order: indices of nodes from left to right and from top to bottom of each block.
 */
export function layOut(zones, nodes, outerWidth) {
  const width = outerWidth - 2 * EDGE;
  const [pitch, rise] = cellSize(nodes, width);
  const isNamed = nodes <= NAMED;
  const x = new Float64Array(nodes).fill(-1);
  const y = new Float64Array(nodes).fill(-1);
  const labels = [];
  const order = [];
  let top = 0;
  for (const zone of zones) {
    const inZone = zone.racks.reduce((sum, rack) => sum + rack.nodes.length, 0);
    const isPlain = zone.racks.length === 1 && zone.racks[0].name === '';
    const gap = isNamed ? 0 : GAP;
    labels.push({ text: `${zone.name || 'no zone'} · ${inZone}`, x: EDGE, y: top + 12, width, isZone: true });
    top += LABEL + 2;
    let left = 0;
    let shelf = 0;
    for (const rack of zone.racks) {
      const widest = Math.max(1, Math.floor(width / pitch));
      const wanted = isPlain || isNamed ? Math.min(widest, Math.max(1, rack.nodes.length)) : Math.ceil(Math.sqrt(rack.nodes.length * 1.5));
      const across = Math.max(1, Math.min(widest, wanted));
      const block = isPlain ? width : Math.max(isNamed ? 0 : LEAST, across * pitch);
      if (left > 0 && left + block > width) {
        left = 0;
        top += shelf + GAP;
        shelf = 0;
      }
      const first = isPlain ? 0 : LABEL;
      if (!isPlain) labels.push({ text: rack.name || 'no rack', x: EDGE + left, y: top + 11, width: block - 4, isZone: false });
      rack.nodes.forEach((node, at) => {
        x[node] = EDGE + left + (at % across) * pitch;
        y[node] = top + first + Math.floor(at / across) * rise;
        order.push(node);
      });
      shelf = Math.max(shelf, first + Math.ceil(rack.nodes.length / across) * rise);
      left += block + gap;
    }
    top += shelf + GAP + 4;
  }
  return { isNamed, cellWidth: pitch - (isNamed ? 6 : 1), cellHeight: rise - (isNamed ? 6 : 1), height: Math.max(top - GAP + EDGE, 1), labels, x, y, order };
}

/** Return the node whose cell contains a point, or -1. */
export function nodeAt(layout, left, top) {
  for (const node of layout.order) {
    if (left >= layout.x[node] && left <= layout.x[node] + layout.cellWidth && top >= layout.y[node] && top <= layout.y[node] + layout.cellHeight) return node;
  }
  return -1;
}

/** Return the node that an arrow key leads to from another one; the same node at the edge. */
export function neighbour(layout, node, key) {
  const { order, x, y } = layout;
  const at = order.indexOf(node);
  if (at < 0 || key === 'Home') return order[0] ?? -1;
  if (key === 'End') return order[order.length - 1];
  if (key === 'ArrowLeft') return order[Math.max(0, at - 1)];
  if (key === 'ArrowRight') return order[Math.min(order.length - 1, at + 1)];
  const sign = key === 'ArrowUp' ? -1 : 1;
  let best = node;
  let least = Infinity;
  for (const other of order) {
    const down = (y[other] - y[node]) * sign;
    if (down <= 0) continue;
    // The nearest row wins, then the nearest column.
    const distance = down * 10000 + Math.abs(x[other] - x[node]);
    if (distance < least) [best, least] = [other, distance];
  }
  return best;
}
