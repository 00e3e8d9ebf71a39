// Panel of NodeReservations: the state of the room, its nodes, and the pods that have used it.

import { Chip, Cut, Empty, html, Meter, Name, Panel, Pure, Table } from '../elements.mjs';
import { routeTo } from '../routing.mjs';
import { count, counted } from '../text.mjs';

const TONES = { Reserved: 'good', Consumed: 'info', Expired: 'quiet' };
const SHOWN_NODES = 6;
const COLUMNS = [
  { title: 'Reservation' }, { title: 'Phase' }, { title: 'Used' }, { title: 'Priority', right: true }, { title: 'Until' }, { title: 'Nodes', wide: true },
];

export class Reservations extends Pure {
  render({ doc, failure }) {
    const held = doc?.reservations.filter((each) => each.phase === 'Reserved').length;
    const note = doc?.isOn ? `${counted(doc.total, 'reservation')}, ${count(held)} held` : '';
    return html`<${Panel} id="reservations" title="Reservations" note=${note} busy=${!doc} failure=${failure} command=${doc?.command}>
      ${doc && (doc.reservations.length
        ? html`<${Cut} entries=${doc.reservations} first=${10} step=${20} what="reservations" omitted=${doc.omitted}>
            ${(entries) => html`<${Table} label="NodeReservations, those without room first" columns=${COLUMNS} rows=${entries.map(row)} />`}
          <//>`
        : html`<${Empty}>${doc.isOn ? 'There is no NodeReservation.' : 'The feature gate NodeReservation is off: NodeReservations have no effect.'}<//>`)}
    <//>`;
  }
}

function row(each) {
  return {
    key: `${each.namespace}/${each.name}`,
    cells: [
      html`<${Name}>${each.namespace}/${each.name}<//>`,
      html`<${Phase} reservation=${each} />`,
      html`<span class="number">${count(each.consumed)} / ${count(each.count)}</span>${' '}<${Meter} share=${each.count ? each.consumed / each.count : 0} label=${`${count(each.consumed)} of ${counted(each.count, 'pod')} bound`} />`,
      html`<bdi>${each.priority || '-'}</bdi>`,
      html`<span class="number">${each.until ?? 'no limit'}</span>`,
      html`<${Nodes} reservation=${each} />`,
    ],
  };
}

function Phase({ reservation: { phase, isImpossible } }) {
  if (isImpossible && phase !== 'Reserved') return html`<${Chip} tone="bad">Impossible<//>`;
  return html`<${Chip} tone=${TONES[phase] ?? 'warn'}>${phase || 'not read'}<//>`;
}

function Nodes({ reservation: { nodes, phase, message } }) {
  const names = Object.keys(nodes);
  if (!names.length) return phase === 'Consumed' || !message ? '-' : html`<bdi>${message}</bdi>`;
  const more = names.length - SHOWN_NODES;
  return html`<ul class="chips">
    ${names.slice(0, SHOWN_NODES).map((name) => html`<li key=${name}>
      <a class="chip" href=${routeTo('nodes', [], { node: name })}><${Name}>${name}<//> <span class="number">${count(nodes[name])}</span></a></li>`)}
    ${more > 0 && html`<li>and ${counted(more, 'more node')}</li>`}
  </ul>`;
}
