// Panel of profiles: revisions on a time line, conditions, shadow agreement, depth of the queue.

import { Chip, Command, Cut, Empty, html, Name, Panel, Pure } from '../elements.mjs';
import { routeTo } from '../routing.mjs';
import { count, counted, localTime } from '../text.mjs';
import { Shadow } from './shadow.mjs';

export class Profiles extends Pure {
  render({ doc, chosen, failure }) {
    const note = doc && `${counted(doc.profiles.length, 'profile')}, from ${doc.source === 'configuration' ? 'a configuration file' : 'resources'}`;
    return html`<${Panel} id="profiles" failure=${failure} title="Profiles" note=${note ?? ''} busy=${!doc} command=${doc?.command ?? "kubectl get schedulerprofiles -o wide"}>
      ${doc && (doc.profiles.length
        ? html`<div class="cards">${doc.profiles.map((profile) => html`<${Profile} key=${profile.name} profile=${profile} isChosen=${profile.name === chosen} />`)}</div>`
        : html`<${Empty}>No profile is served.<//>`)}
    <//>`;
  }
}

function Profile({ profile, isChosen }) {
  const { shadow } = profile;
  return html`<article class=${`card ${isChosen ? 'chosen' : ''}`} id=${`profile-${profile.name}`}>
    <h3><a href=${routeTo('profiles', [profile.name])}><${Name}>${profile.name}<//></a>
      ${shadow && html` <${Chip} tone="info">shadow<//>`}</h3>
    <p class="note">schedulerName <${Name}>${profile.schedulerName}<//>, revision <${Name}>${profile.revision || '-'}<//></p>
    <p class="chips">${profile.conditions.map((condition) => html`<${Chip} key=${condition.type} tone=${toneOf(condition)}>
      <span title=${condition.message}>${condition.type}: ${condition.status}${condition.reason && condition.reason !== condition.type ? ` (${condition.reason})` : ''}</span><//>`)}</p>
    ${profile.conditions.filter((condition) => toneOf(condition) === 'bad' && condition.message).map((condition) => html`
      <p key=${condition.type} class="problem"><bdi>${condition.message}</bdi></p>`)}
    ${!shadow && html`<dl class="figures">
      ${Object.entries(profile.queue).map(([place, number]) => html`<div key=${place}><dt>${place}</dt><dd class="number">${count(number)}</dd></div>`)}
      <div><dt>scheduled</dt><dd class="number">${count(profile.scheduled)}</dd></div>
      <div><dt>rejected</dt><dd class="number">${count(profile.rejected)}</dd></div>
      <div><dt>errors</dt><dd class="number">${count(profile.errors)}</dd></div>
    </dl>`}
    ${profile.lastError && html`<p class="problem"><${Chip} tone="bad">Last error<//> <bdi>${profile.lastError}</bdi></p>`}
    ${shadow && html`<${Shadow} shadow=${shadow} />`}
    <${Revisions} revisions=${profile.revisions} />
    ${profile.extenders.length > 0 && html`<h4>Extenders</h4><ul class="list">${profile.extenders.map((extender) => html`<li key=${extender.urlPrefix}>
      <${Name}>${extender.urlPrefix}<//> <${Chip} tone=${extender.state === 'Closed' ? 'good' : 'bad'}>circuit ${extender.state}<//>
      ${extender.lastError && html` <bdi class="note">${extender.lastError}</bdi>`}</li>`)}</ul>`}
    <${Command} text=${profile.command} />
  </article>`;
}

const UNWANTED = ['Contested', 'Degraded', 'RolledBack', 'Stalled'];

function toneOf({ type, status }) {
  if (status === 'Unknown') return 'quiet';
  return (status === 'True') !== UNWANTED.includes(type) ? 'good' : 'bad';
}

function Revisions({ revisions }) {
  if (!revisions.length) return null;
  const times = revisions.map((revision) => Date.parse(revision.time)).filter((time) => !Number.isNaN(time));
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const x = (time) => (last > first ? 2 + (96 * (Date.parse(time) - first)) / (last - first) : 98);
  return html`<div><h4>Revisions</h4>
    ${times.length > 1 && html`<svg class="axis" aria-hidden="true"><line x1="0" x2="100%" y1="8" y2="8" />
      ${revisions.map((revision) => html`<circle key=${revision.revision} class=${revision.live ? 'live' : ''} cx=${`${x(revision.time)}%`} cy="8" r=${revision.live ? 5 : 4} />`)}
    </svg>`}
    <${Cut} entries=${revisions} first=${4} what="revisions">${(shown) => html`<ol class="timeline">${shown.map((revision) => html`
      <li key=${revision.revision} class=${revision.live ? 'live' : ''}>
        <span class="number">${localTime(revision.time)}</span> <${Name}>${revision.revision}<//>
        ${revision.live && html` <${Chip} tone="good">live<//>`}
        <span class="note"> ${revision.cause ? html`<bdi>${revision.cause}</bdi>` : ''}${revision.manager ? html` by <bdi>${revision.manager}</bdi>` : ''}</span>
      </li>`)}</ol>`}<//>
  </div>`;
}
