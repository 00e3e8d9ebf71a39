// Entry of a report of two profiles. The documents of each panel are by side.

import { html } from './elements.mjs';
import { ComparedNodes } from './panels/compared_nodes.mjs';
import { PANELS, readReport, showReport } from './report_source.mjs';

const source = readReport();

/** Return a component that shows a panel for both sides. */
function both(Shown, id) {
  return ({ doc, ...props }) => html`<div class="sides" id=${id}>${source.sides.map((side) => html`
    <${Shown} key=${side.id} ...${props} doc=${doc?.[side.id]} side=${side} />`)}</div>`;
}

const { overview, pending, work, gangs } = PANELS;

showReport(source, {
  overview: both(overview, 'overview'),
  pending: both(pending, 'pending'),
  work,
  gangs: both(gangs, 'gangs'),
  nodes: (props) => html`<${ComparedNodes} ...${props} sides=${source.sides} />`,
});
