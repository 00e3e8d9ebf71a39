// Panel of RebalancePlans: the moves with their progress, the pods of the nodes now and after, and what is left alone.

import { Chip, Command, Cut, Empty, html, Meter, Name, Panel, Pure, Table } from '../elements.mjs';
import { podLink } from '../routing.mjs';
import { count, counted } from '../text.mjs';

export class Plans extends Pure {
  render({ doc, failure }) {
    const note = doc && counted(doc.plans.length, 'RebalancePlan');
    return html`<${Panel} id="plans" failure=${failure} title="Plans of moves" note=${note ?? ''} busy=${!doc} command=${doc?.command}>
      ${doc && (doc.plans.length
        ? html`<div class="cards">${doc.plans.map((plan) => html`<${Plan} key=${plan.state.name} plan=${plan} />`)}</div>`
        : html`<${Empty}>There is no RebalancePlan.<//>`)}
    <//>`;
  }
}

const TONES = { Pending: 'quiet', Scheduled: 'quiet', Planned: 'info', Moving: 'warn', Completed: 'good', Stopped: 'bad', Invalid: 'bad', Suspended: 'quiet' };
const MOVE_TONES = { Pending: 'quiet', Evicting: 'warn', Moved: 'good', Failed: 'bad' };

function Plan({ plan: { state, nodes, command } }) {
  const { name, objective, dryRun, phase, planned, moved, cost, gain, message, moves, omitted, leftAlone } = state;
  return html`<article class="card" data-id=${name}>
    <h3><${Name}>${name}<//></h3>
    <p class="chips"><${Chip} tone=${TONES[phase] ?? 'quiet'}>${phase || 'not planned yet'}<//>
      <span class="chip">${objective}</span> ${dryRun && html`<span class="chip">dry run</span>`}</p>
    ${planned > 0 && html`<p><${Meter} share=${moved / planned} label=${`${count(moved)} of ${counted(planned, 'move')} made`} />
      <span class="note">${count(moved)} of ${counted(planned, 'move')} made, cost ${count(cost)}</span></p>`}
    ${gain && !message.includes(gain) && html`<p><bdi>${gain}</bdi></p>`}
    ${message && html`<p class=${phase === 'Stopped' || phase === 'Invalid' ? 'problem' : 'note'}><bdi>${message}</bdi></p>`}
    ${moves.length > 0 && html`<h4>Moves</h4><${Cut} entries=${moves} first=${10} what="moves" omitted=${omitted}>
      ${(shown) => html`<${Table} label=${`Moves of ${name}`} columns=${[{ title: 'Pod' }, { title: 'From' }, { title: 'To' }, { title: 'State' }]}
        rows=${shown.map((move, at) => ({
          key: `${at} ${move.pod}`,
          cells: [html`<a href=${podLink(move.pod)}><${Name}>${move.pod}<//></a>`, html`<${Name}>${move.source}<//>`, html`<${Name}>${move.target}<//>`,
            html`<${Chip} tone=${MOVE_TONES[move.state] ?? 'quiet'}>${move.state}<//>`],
        }))} />`}
    <//>`}
    ${nodes.length > 0 && html`<h4>Pods on nodes</h4><${Cut} entries=${nodes} first=${10} what="nodes">
      ${(shown) => html`<${Table} label=${`Pods on nodes, now and after the moves of ${name}`}
        columns=${[{ title: 'Node' }, { title: 'Now', right: true }, { title: 'After the moves', right: true }]}
        rows=${shown.map((each) => ({ key: each.node, cells: [html`<${Name}>${each.node}<//>`, count(each.podsBefore), count(each.podsAfter)] }))} />`}
    <//>`}
    ${leftAlone.length > 0 && html`<h4>Left alone</h4><ul class="list">${leftAlone.map((left) => html`<li key=${left.reason}>
      ${counted(left.count, 'pod')}: <bdi>${left.reason}</bdi> <span class="note">such as <${Name}>${left.pods.join(', ')}<//></span></li>`)}</ul>`}
    <${Command} text=${command} />
  </article>`;
}
