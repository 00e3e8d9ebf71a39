// Panel of pending work: pods that wait, grouped by cause.

import { Age, Chip, Command, Cut, Empty, html, Meter, Name, Panel, Pure } from '../elements.mjs';
import { podLink, routeTo } from '../routing.mjs';
import { count, counted } from '../text.mjs';

const TONES = { unschedulable: 'bad', gated: 'warn', parked: 'warn', backoff: 'info', errorBackoff: 'bad' };

export class Pending extends Pure {
  render({ doc, at, hasProfiles, side, failure }) {
    const note = doc && `${counted(doc.total, 'pod')} in ${counted(doc.groups.length, 'group')}${doc.omitted ? `; ${count(doc.omitted)} pods are in further groups` : ''}`;
    return html`<${Panel} id="pending" failure=${failure} side=${side} title="Pending work" note=${note ?? ''} busy=${!doc} command=${doc?.command ?? 'bayplan status'}>
      ${doc && (doc.groups.length
        ? html`<${Cut} entries=${doc.groups} first=${10} step=${30} what="groups">
            ${(groups) => html`<ol class="groups">
              ${groups.map((group) => html`<${Group} key=${group.id} group=${group} total=${doc.total} at=${at} hasProfiles=${hasProfiles} side=${side} />`)}
            </ol>`}
          <//>`
        : html`<${Empty}>No pod waits.<//>`)}
    <//>`;
  }
}

function Group({ group, total, at, hasProfiles, side }) {
  const share = total ? group.count / total : 0;
  return html`<li class="group" data-id=${group.id}>
    <div class="measure">
      <strong class="number">${count(group.count)}</strong>
      <${Meter} share=${share} label=${`${count(group.count)} of ${counted(total, 'pending pod')}`} />
      ${at !== null && html`<span class="note">oldest <${Age} seconds=${group.oldestSeconds} at=${at} /></span>`}
    </div>
    <div class="facts">
      <h3><bdi>${group.cause}</bdi></h3>
      <p class="chips">
        <${Chip} tone=${TONES[group.place] ?? 'quiet'}>${group.place}<//>
        ${group.plugins.map((plugin) => html`<span key=${plugin} class="chip"><${Name}>${plugin}<//></span>`)}
        ${group.profiles.map((name) => (hasProfiles
          ? html`<a key=${name} class="chip" href=${routeTo('profiles', [name])}>profile <${Name}>${name}<//></a>`
          : html`<span key=${name} class="chip">profile <${Name}>${name}<//></span>`))}
      </p>
      <dl>
        ${group.error && html`<dt>Error</dt><dd><bdi>${group.error}</bdi></dd>`}
        ${group.elsewhere && html`<dt>Elsewhere</dt><dd><bdi>${group.elsewhere}</bdi></dd>`}
        ${group.nearestMiss && html`<dt>Nearest miss</dt><dd><bdi>${group.nearestMiss}</bdi></dd>`}
        ${group.helps && html`<dt>Would help</dt><dd><bdi>${group.helps}</bdi></dd>`}
        ${group.examples.length > 0 && html`<dt>Examples</dt><dd class="names">
          ${group.examples.map((name) => html`<a key=${name} href=${podLink(name, side?.id)}><${Name}>${name}<//></a>`)}</dd>`}
      </dl>
      <${Command} text=${group.command} />
    </div>
  </li>`;
}
