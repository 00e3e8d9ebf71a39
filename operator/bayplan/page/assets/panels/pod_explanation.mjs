// Explanation of a pod: filters, scores by plugin, near misses, preemption, events that would help.

import { Chip, Cut, html, Name, Table } from '../elements.mjs';
import { count, counted, amountOf, localTime } from '../text.mjs';
import { GangFacts } from './gang_explanation.mjs';

const TONES = { Fits: 'good', Placed: 'good', Unschedulable: 'bad', Error: 'bad', Gated: 'warn', NoProfile: 'warn' };
const COMPARED = 5;

export function PodFacts({ pod }) {
  return html`
    <p class="headline"><${Chip} tone=${TONES[pod.verdict] ?? 'quiet'}>${pod.verdict}<//> <bdi>${pod.headline}</bdi></p>
    ${pod.message && html`<p class="quote"><bdi>${pod.message}</bdi></p>`}
    ${pod.notices.map((notice) => html`<p key=${notice} class="note"><bdi>${notice}</bdi></p>`)}
    <div class="columns">
      <${Rejections} pod=${pod} />
      <${Nearest} nearest=${pod.nearest} preemption=${pod.preemption} />
      <${Helps} unblocking=${pod.unblocking} />
      <${Preemption} preemption=${pod.preemption} />
      <${NewNodes} found=${pod.newNodes} />
      <${Devices} devices=${pod.devices} />
    </div>
    <${Scores} pod=${pod} />
    ${pod.gang && html`<h3>Gang <${Name}>${`${pod.gang.namespace}/${pod.gang.name}`}<//></h3><${GangFacts} gang=${pod.gang} />`}`;
}

function Rejections({ pod }) {
  if (!pod.rejections.length) return null;
  const columns = [{ title: 'Filter' }, { title: 'Nodes', right: true }, { title: 'Reasons', wide: true }];
  const rows = pod.rejections.map((each) => ({
    key: each.plugin,
    cells: [
      html`<${Name}>${each.plugin}<//>`,
      each.nodes ? count(each.nodes) : 'all',
      html`<ul class="plain">${each.reasons.map((reason) => html`<li key=${reason.reason}>
        ${reason.nodes ? html`<span class="number">${count(reason.nodes)}</span> × ` : ''}<bdi>${reason.reason}</bdi></li>`)}</ul>`,
    ],
  }));
  // A gate, and a PreFilter that rejects the pod, hold for all nodes.
  const isWhole = pod.rejections.every((each) => !each.nodes);
  const title = isWhole ? 'Rejected before nodes are filtered' : `Filters: ${count(pod.nodes.feasible)} of ${counted(pod.nodes.total, 'node')} feasible`;
  return html`<div><h3>${title}</h3>
    <${Table} label="Nodes by the filter that rejected them first" columns=${columns} rows=${rows} /></div>`;
}

/** Nodes that lack the least, and what each lacks. */
export function Nearest({ nearest, preemption, title = 'Nearest nodes' }) {
  if (!nearest.length) return null;
  // A dry run of preemption that finds nothing is more exact than the status of a plugin.
  const mayHelp = !preemption?.message;
  const columns = [{ title: 'Node' }, { title: 'Lacks', wide: true }];
  return html`<div><h3>${title}</h3><${Cut} entries=${nearest} first=${5} what="nodes">
    ${(shown) => html`<${Table} label=${title} columns=${columns} rows=${shown.map((node) => ({
      key: node.node,
      cells: [html`<${Name}>${node.node}<//>`, html`<ul class="plain">${node.lacks.map((lack) => lackItem(lack, mayHelp))}</ul>`],
    }))} />`}
  <//></div>`;
}

function lackItem(lack, mayHelp) {
  const amounts = lack.amounts.map((amount) =>
    `${amount.resource}: needs ${amountOf(amount.resource, amount.needed)}, free ${amountOf(amount.resource, amount.free)}`);
  const what = amounts.length ? amounts : lack.reasons;
  return html`<li key=${lack.plugin}><${Name}>${lack.plugin}<//>: <bdi>${[...what, ...lack.details].join('; ')}</bdi>
    ${lack.preemptionMayHelp && mayHelp ? html` <span class="note">(preemption may help)</span>` : ''}</li>`;
}

function Helps({ unblocking }) {
  if (!unblocking.length) return null;
  return html`<div><h3>Would help</h3><ul class="list">${unblocking.map((event, at) => html`<li key=${at}>
    <bdi>${event.what}</bdi>${event.fitsOn ? html`: then it fits on <${Name}>${event.fitsOn}<//>` : ''}
    <span class="note"> ${[event.event, ...event.plugins].join(', ')}</span></li>`)}</ul></div>`;
}

/** Dry run of preemption, of a pod or a gang. */
export function Preemption({ preemption }) {
  if (!preemption) return null;
  const { node, nodes, victims, pdbViolations, message, waitsUntil } = preemption;
  const where = node ?? nodes?.join(', ');
  return html`<div><h3>Preemption (dry run)</h3>
    <p>${message ? html`<bdi>${message}</bdi>` : html`evicts ${counted(victims.length, 'pod')} on <${Name}>${where}<//>`}
      ${waitsUntil && html` <span class="note">waits until ${localTime(waitsUntil)} for a new node first</span>`}
      ${pdbViolations > 0 && html` <${Chip} tone="warn">violates ${counted(pdbViolations, 'PodDisruptionBudget')}<//>`}</p>
    <${Cut} entries=${victims} first=${5} what="victims">${(shown) => html`<ul class="list">
      ${shown.map((victim) => html`<li key=${`${victim.namespace}/${victim.name}`}>
        <${Name}>${`${victim.namespace}/${victim.name}`}<//> <span class="note">priority ${victim.priority}</span></li>`)}
    </ul>`}<//></div>`;
}

/** Copies of present nodes with which a pod or a gang fits. */
export function NewNodes({ found }) {
  if (!found?.helpful.length) return null;
  return html`<div><h3>New nodes that would help</h3><ul class="list">${found.helpful.map((each) => html`<li key=${each.node}>
    ${counted(each.count, 'node')} like <${Name}>${each.node}<//></li>`)}</ul></div>`;
}

function Devices({ devices }) {
  if (!devices) return null;
  return html`<div><h3>Devices</h3><ul class="list">
    ${devices.claims.map((each, at) => html`<li key=${`claim-${at}`}><${Name}>${each.claim}<//>${each.request ? html`, request <${Name}>${each.request}<//>` : ''}:
      <bdi>${each.reason}</bdi> <span class="note">(${counted(each.nodes, 'node')}, for example <${Name}>${each.example}<//>)</span></li>`)}
    ${devices.rejected.map((each, at) => html`<li key=${`group-${at}`}>${counted(each.devices, 'device')} such as <${Name}>${each.example}<//>:
      <bdi>${each.unmet.map((condition) => condition.what).join('; ')}</bdi>
      ${each.heldBy.length > 0 && html` <span class="note">in use by <bdi>${each.heldBy.join(', ')}</bdi>${each.moreHolders ? ` and ${count(each.moreHolders)} more` : ''}</span>`}</li>`)}
  </ul></div>`;
}

function Scores({ pod }) {
  const nodes = pod.scores.slice(0, COMPARED);
  if (!nodes.length) return null;
  const plugins = [...new Set(nodes.flatMap((node) => Object.keys(node.plugins)))];
  const role = (at) => (at === 0 ? 'choice' : at === 1 ? 'runner-up' : `${at + 1}.`);
  const columns = [{ title: 'Plugin' }, ...nodes.map((node, at) => ({
    title: html`<span class="note">${pod.tied.length > 1 && pod.tied.includes(node.node) ? 'tied' : role(at)}</span><br /><${Name}>${node.node}<//>`,
    right: true,
  }))];
  const part = (score) => score && html`<span class="number" title=${`score ${score.raw}, normalized ${score.normalized}`}>${count(score.weighted)}</span>
    <small class="note"> (${count(score.normalized)})</small>`;
  const rows = [
    ...plugins.map((plugin) => ({
      key: plugin,
      cells: [html`<${Name}>${plugin}<//>`, ...nodes.map((node) => part(node.plugins[plugin]) ?? '-')],
    })),
    { key: ' total', tone: 'total', cells: ['Total', ...nodes.map((node) => html`<strong>${count(node.total)}</strong>`)] },
  ];
  return html`<h3>Scores by plugin</h3>
    <p class="note">Weighted score, and in parentheses the normalized score of 0 to 100. ${pod.tied.length > 1
      ? `${count(pod.tied.length)} nodes have the highest score; one of them is chosen randomly.` : ''}</p>
    <${Table} label="Scores by plugin and node, best node first" columns=${columns} rows=${rows} />`;
}
