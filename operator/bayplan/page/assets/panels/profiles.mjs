// Panel of profiles: revisions on a time line, conditions, shadow agreement, depth of the queue.

import { Chip, Command, Cut, Empty, html, Name, Panel, Pure } from '../elements.mjs';
import { routeTo } from '../routing.mjs';
import { count, counted, localTime } from '../text.mjs';
import { Shadow } from './shadow.mjs';

export class Profiles extends Pure {
  render({ doc, chosen, opened, failure }) {
    const note = doc && `${counted(doc.profiles.length, 'profile')}, from ${doc.source === 'configuration' ? 'a configuration file' : 'resources'}`;
    return html`<${Panel} id="profiles" failure=${failure} title="Profiles" note=${note ?? ''} busy=${!doc} command=${doc?.command ?? "kubectl get schedulerprofiles -o wide"}>
      ${doc && (doc.profiles.length
        ? html`<div class="cards">${doc.profiles.map((profile) => html`<${Profile} key=${profile.name} profile=${profile} opened=${profile.name === chosen ? opened : undefined} isChosen=${profile.name === chosen} />`)}</div>`
        : html`<${Empty}>No profile is served.<//>`)}
    <//>`;
  }
}

function Profile({ profile, isChosen, opened }) {
  const { shadow, state } = profile;
  return html`<article class=${`card ${isChosen ? 'chosen' : ''}`} id=${`profile-${profile.name}`}>
    <h3><a href=${routeTo('profiles', [profile.name])}><${Name}>${profile.name}<//></a>
      ${shadow && html` <${Chip} tone="info">shadow<//>`}</h3>
    <p class="note">schedulerName <${Name}>${profile.schedulerName}<//>, revision <${Name}>${profile.revision || '-'}<//></p>
    <p class="chips">${profile.conditions.map((condition) => html`<${Chip} key=${condition.type} tone=${toneOf(condition)}>
      <span title=${condition.message}>${condition.type}: ${condition.status}${condition.reason && condition.reason !== condition.type ? ` (${condition.reason})` : ''}</span><//>`)}</p>
    ${profile.conditions.filter((condition) => toneOf(condition) === 'bad' && condition.message).map((condition) => html`
      <p key=${condition.type} class="problem"><bdi>${condition.message}</bdi></p>`)}
    ${!shadow && html`<dl class="figures">
      ${FIGURES.map((name) => html`<div key=${name}><dt>${name}</dt><dd class="number">${count(state?.[name] ?? 0)}</dd></div>`)}
    </dl>`}
    ${state?.lastError && html`<p class="problem"><${Chip} tone="bad">Last error<//> <bdi>${state.lastError}</bdi></p>`}
    ${shadow && html`<${Shadow} shadow=${shadow} />`}
    <${Revisions} revisions=${profile.revisions} name=${profile.name} opened=${opened} />
    ${state?.extenders.length > 0 && html`<h4>Extenders</h4><ul class="list">${state.extenders.map((extender) => html`<li key=${extender.urlPrefix}>
      <${Name}>${extender.urlPrefix}<//> <${Chip} tone=${extender.state === 'Closed' ? 'good' : 'bad'}>circuit ${extender.state}<//>
      ${extender.lastError && html` <bdi class="note">${extender.lastError}</bdi>`}</li>`)}</ul>`}
    <${Command} text=${profile.command} />
  </article>`;
}

/** Numbers of the state that are shown: pods by place in the queue, and results of attempts. */
const FIGURES = ['active', 'backoff', 'unschedulable', 'gated', 'scheduled', 'rejected', 'errors'];

const UNWANTED = ['Contested', 'Degraded', 'Stalled'];

function toneOf({ type, status }) {
  if (status === 'Unknown') return 'quiet';
  return (status === 'True') !== UNWANTED.includes(type) ? 'good' : 'bad';
}

/** Revisions, newest first: what changed, who changed it, and the diff from the one before. */
function Revisions({ revisions, name, opened }) {
  if (!revisions.length) return null;
  return html`<div><h4>Revisions</h4>
    <${Cut} entries=${revisions} first=${Math.max(4, revisions.findIndex(({ number }) => String(number) === opened) + 1)} what="revisions">
      ${(shown) => html`<ol class="timeline">${shown.map((revision) => html`<${Revision} key=${revision.number} revision=${revision} name=${name}
        isOpen=${String(revision.number) === opened} />`)}</ol>`}
    <//></div>`;
}

function Revision({ revision: { number, revision, time, live, cause, manager, changes, diff, command }, name, isOpen }) {
  const [first, ...others] = changes;
  return html`<li class=${live ? 'live' : ''}>
    <a href=${routeTo('profiles', [name, String(number)])}><strong>${number}</strong> <${Name}>${revision}<//></a> ${live && html`<${Chip} tone="good">live<//> `}
    <span class="note"><span class="number">${localTime(time)}</span>${manager ? html` by <bdi>${manager}</bdi>` : ''}${cause ? html`: <bdi>${cause}</bdi>` : ''}</span>
    ${first
      ? html`<p><${Name}>${first}<//>${others.length > 0 && html` <span class="note">and ${count(others.length)} more</span>`}</p>`
      : html`<p class="note">${command ? 'no change that this version can show' : 'oldest stored revision'}</p>`}
    ${diff && html`<details open=${isOpen}><summary>Diff</summary>
      <pre class="diff">${diff.split('\n').map((line, at) => html`<span key=${at} class=${line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : ''}>${`${line}\n`}</span>`)}</pre>
      <${Command} text=${command} /></details>`}
  </li>`;
}
