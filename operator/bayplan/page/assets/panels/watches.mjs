// Panel of watches: which are stale, and which objects cannot be decoded.

import { Chip, Empty, html, Name, Panel, Pure, Table } from '../elements.mjs';
import { count, counted } from '../text.mjs';

export class Watches extends Pure {
  render({ doc, failure }) {
    const troubled = doc?.watches.filter((each) => toneOf(each) === 'bad').length;
    const note = doc && `${counted(doc.watches.length, 'resource')}, ${troubled ? `${count(troubled)} with problems` : 'all current'}`;
    const columns = [{ title: 'Resource' }, { title: 'State' }, { title: 'Objects', right: true }, { title: 'Problem', wide: true }];
    return html`<${Panel} id="watches" title="Watches" note=${note ?? ''} busy=${!doc} failure=${failure} command=${doc?.command}>
      ${doc && (doc.watches.length
        ? html`<${Table} label="Watches of the API server, those with problems first" columns=${columns} rows=${doc.watches.map((each) => ({
            key: each.resource,
            cells: [html`<${Name}>${each.resource}<//>`, html`<${Chip} tone=${toneOf(each)}>${stateOf(each)}<//>`, count(each.objects), html`<${Problem} watch=${each} />`],
          }))} />`
        : html`<${Empty}>Nothing is watched.<//>`)}
    <//>`;
  }
}

function toneOf({ problem, synced, undecodable, unprocessed }) {
  if (problem || undecodable || unprocessed) return 'bad';
  return synced ? 'good' : 'warn';
}

function stateOf({ problem, synced, undecodable, unprocessed }) {
  if (problem) return synced ? 'stale' : 'not listed';
  if (undecodable) return 'undecodable objects';
  if (unprocessed) return 'unprocessed changes';
  return synced ? 'current' : 'being listed';
}

function Problem({ watch: { problem, undecodable, undecodableObjects, unprocessed } }) {
  const hidden = undecodable - undecodableObjects.length;
  const lines = [
    ...(problem ? [problem] : []),
    ...(unprocessed ? [`${counted(unprocessed, 'change')} failed to be processed and ${unprocessed === 1 ? 'is' : 'are'} retried`] : []),
    ...undecodableObjects.map((each) => `cannot be decoded: ${each}`),
    ...(hidden > 0 ? [`${count(hidden)} more cannot be decoded`] : []),
  ];
  return lines.length ? html`<ul class="plain">${lines.map((line) => html`<li key=${line}><bdi>${line}</bdi></li>`)}</ul>` : '-';
}
