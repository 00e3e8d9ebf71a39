// Card of the selected node: amounts, taints, reservation, pods and labels.

import { Chip, Command, Cut, html, Meter, Name, Table } from '../elements.mjs';
import { Refreshing } from '../refreshing.mjs';
import { podLink } from '../routing.mjs';
import { count, counted, percent } from '../text.mjs';

/** Properties: name, source, isLive. */
export class NodeCard extends Refreshing {
  path({ name }) {
    return name ? `node?name=${encodeURIComponent(name)}` : '';
  }

  render(_, { doc, error }) {
    if (error) return html`<p class="problem"><${Chip} tone="bad">Not found<//> ${error}</p>`;
    if (!doc) return null;
    return html`<div>
      ${doc.held && html`<p class="problem"><${Chip} tone="bad">accepts no pods<//> <bdi>${doc.held}</bdi></p>`}
      <${Amounts} amounts=${doc.amounts} />
      ${doc.taints.length > 0 && html`<h4>Taints</h4><ul class="plain">${doc.taints.map((taint) => html`<li key=${taint}><${Name}>${taint}<//></li>`)}</ul>`}
      ${doc.reservation && html`<p>Reserved for <${Name}>${doc.reservation}<//></p>`}
      ${doc.nominated.length > 0 && html`<h4>Nominated</h4><ul class="plain">${doc.nominated.map((pod) => html`<li key=${pod}><a href=${podLink(pod)}><${Name}>${pod}<//></a></li>`)}</ul>`}
      <${Pods} pods=${doc.pods} omitted=${doc.omitted} />
      <details><summary>${counted(Object.keys(doc.labels).length, 'label')}</summary><ul class="plain">${Object.entries(doc.labels).map(([key, value]) => html`
        <li key=${key}><${Name}>${key}=${value}<//></li>`)}</ul></details>
      <${Command} text=${doc.command} />
    </div>`;
  }
}

function Amounts({ amounts }) {
  const columns = [{ title: 'Resource' }, { title: 'Used', right: true }, { title: 'Of', right: true }, { title: 'Free', right: true }, { title: '' }];
  return html`<${Table} label="Amounts of the node" columns=${columns} rows=${amounts.map(({ resource, used, allocatable, free, share }) => ({
    key: resource,
    cells: [html`<${Name}>${resource}<//>`, used, allocatable, free, share === null ? '-' : html`<${Meter} share=${share} tone=${share >= 0.9 ? 'full' : ''} label=${`${percent(share)} in use`} />`],
  }))} />`;
}

function Pods({ pods, omitted }) {
  if (!pods.length) return html`<p class="note">No pod is on this node.</p>`;
  const columns = [{ title: 'Pod' }, { title: 'Priority', right: true }, { title: 'Requests' }];
  return html`<h4>${counted(pods.length + omitted, 'pod')}</h4><${Cut} entries=${pods} first=${5} step=${20} what="pods" omitted=${omitted}>
    ${(shown) => html`<${Table} label="Pods on the node, highest priority first" columns=${columns} rows=${shown.map(({ pod, priority, requests }) => ({
      key: pod, cells: [html`<a href=${podLink(pod)}><${Name}>${pod}<//></a>`, count(priority), requests || '-'],
    }))} />`}<//>`;
}
