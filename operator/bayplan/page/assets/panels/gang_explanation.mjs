// Explanation of a gang: members, domains in which it does not fit, preemption, reservation.

import { Chip, Cut, html, Meter, Name, Table } from '../elements.mjs';
import { count, counted, localTime } from '../text.mjs';
import { Nearest, NewNodes, Preemption } from './pod_explanation.mjs';

const TONES = { Fits: 'good', Placed: 'good', Finished: 'good', Unschedulable: 'bad', Error: 'bad', Incomplete: 'warn', NoGroup: 'warn', NoProfile: 'warn' };

export function GangFacts({ gang }) {
  const { members, lastAttempt: last, reservation } = gang;
  return html`
    <p class="headline"><${Chip} tone=${TONES[gang.verdict] ?? 'quiet'}>${gang.verdict}<//> <bdi>${gang.headline}</bdi></p>
    ${gang.message && html`<p class="quote"><bdi>${gang.message}</bdi></p>`}
    ${gang.notices.map((notice) => html`<p key=${notice} class="note"><bdi>${notice}</bdi></p>`)}
    <dl class="figures">
      ${['existing', 'gated', 'waiting', 'placed', 'succeeded', 'failed'].map((state) => html`<div key=${state}>
        <dt>${state === 'placed' ? 'scheduled' : state}</dt><dd class="number">${count(members[state])}</dd></div>`)}
      <div><dt>minMember</dt><dd class="number">${count(members.minMember)}</dd></div>
      <div><dt>needed now</dt><dd class="number">${count(members.needed)}</dd></div>
    </dl>
    <${Places} places=${gang.places} preemption=${gang.preemption} />
    <div class="columns">
      <${Placement} gang=${gang} />
      <${Preemption} preemption=${gang.preemption} />
      <${NewNodes} found=${gang.newNodes} />
      ${reservation && html`<div><h3>Reservation</h3><p><bdi>${reservation.where}</bdi>, ${counted(reservation.nodes.length, 'node')}${
        reservation.waitsFor.length ? html`; waits for <bdi>${reservation.waitsFor.join(', ')}</bdi>` : ''}</p></div>`}
      ${gang.keptOff.length > 0 && html`<div><h3>Reserved for other gangs</h3><ul class="list">${gang.keptOff.map((other) => html`<li key=${other.gang}>
        <${Name}>${other.gang}<//>: ${counted(other.nodes.length, 'node')}</li>`)}</ul></div>`}
      ${last && html`<div><h3>Last attempt</h3><p><${Chip} tone="info">${last.reason}<//> <bdi>${last.message}</bdi>
        ${last.time && html` <span class="note">${localTime(last.time)}</span>`}</p></div>`}
    </div>`;
}

function Places({ places, preemption }) {
  if (!places.length) return null;
  const columns = [{ title: 'Domain' }, { title: 'Fit', right: true }, { title: 'Of needed' }, { title: 'First member without a node', wide: true }];
  return html`<div><h3>Domains</h3><${Cut} entries=${places} first=${8} what="domains">
    ${(shown) => html`<${Table} label="Domains in which the gang does not fit, nearest first" columns=${columns} rows=${shown.map((place) => ({
      key: place.domain ?? '',
      cells: [
        place.domain ? html`<${Name}>${place.domain}<//>` : 'whole cluster',
        `${count(place.fitting)} / ${count(place.needed)}`,
        html`<${Meter} share=${place.fitting / (place.needed || 1)} label=${`${count(place.fitting)} of ${count(place.needed)} members fit`} />`,
        place.nextMember
          ? html`<${Name}>${place.nextMember.name}<//>: <bdi>${place.nextMember.message}</bdi>`
          : place.isTried ? '-' : 'not tried: too few members have room',
      ],
    }))} />`}
  <//>${places[0].nextMember && html`<${Nearest} nearest=${places[0].nextMember.nearest} preemption=${preemption} title="Nodes nearest for that member" />`}</div>`;
}

function Placement({ gang }) {
  if (!gang.placement.length) return null;
  const columns = [{ title: 'Member' }, { title: 'Node' }];
  return html`<div><h3>Fits${gang.domain ? html` in <${Name}>${gang.domain}<//>` : ''}</h3>
    <${Cut} entries=${gang.placement} first=${8} what="members">${(shown) => html`<${Table} label="Node of each member" columns=${columns}
      rows=${shown.map((each) => ({ key: each.member, cells: [html`<${Name}>${each.member}<//>`, html`<${Name}>${each.node}<//>`] }))} />`}<//></div>`;
}
