// Panel of gangs: members by domain, what is missing, the reservation.

import { Age, Chip, Command, Cut, Empty, html, Meter, Name, Panel, Pure } from '../elements.mjs';
import { gangLink } from '../routing.mjs';
import { count, counted } from '../text.mjs';

export class Gangs extends Pure {
  render({ doc, at, side, failure }) {
    const note = doc && `${counted(doc.total, 'gang')} ${doc.total === 1 ? 'waits' : 'wait'}`;
    return html`<${Panel} id="gangs" failure=${failure} side=${side} title="Gangs" note=${note ?? ''} busy=${!doc} command=${doc?.command ?? 'bayplan status'}>
      ${doc && (doc.gangs.length
        ? html`<${Cut} entries=${doc.gangs} first=${10} step=${20} what="gangs" omitted=${doc.omitted}>
            ${(gangs) => html`<ol class="groups">
              ${gangs.map((gang) => html`<${Gang} key=${`${gang.api}/${gang.gang}`} gang=${gang} at=${at} side=${side} />`)}
            </ol>`}
          <//>`
        : html`<${Empty}>No gang waits.<//>`)}
    <//>`;
  }
}

function Gang({ gang, at, side }) {
  const wanted = gang.minMember || gang.placed + gang.needed;
  return html`<li class="group" data-id=${gang.gang}>
    <div class="measure">
      <strong class="number">${count(gang.placed)}<small> / ${count(wanted)}</small></strong>
      <${Meter} share=${wanted ? gang.placed / wanted : 0}
        label=${`${count(gang.placed)} of ${counted(wanted, 'member')} scheduled`} />
      ${at !== null && html`<span class="note">waits <${Age} seconds=${gang.seconds} at=${at} /></span>`}
    </div>
    <div class="facts">
      <h3><a href=${gangLink(gang.gang, gang.api, side?.id)}><${Name}>${gang.gang}<//></a></h3>
      <p class="chips">
        ${gang.reason && html`<${Chip} tone=${gang.missing ? 'warn' : 'bad'}>${gang.reason}<//>`}
        ${gang.place && html`<span class="chip">${gang.place}</span>`}
        <span class="chip">priority ${gang.priority}</span>
        <span class="chip"><${Name}>${gang.api}<//></span>
      </p>
      <dl>
        <dt>Members</dt><dd>${count(gang.placed)} scheduled, ${count(gang.waiting)} waiting, ${count(gang.needed)} to be scheduled together${gang.missing
          ? html`, <strong>${count(gang.missing)} missing</strong>` : ''}</dd>
        ${gang.message && html`<dt>Message</dt><dd><bdi>${gang.message}</bdi></dd>`}
        ${gang.reservation && html`<dt>Reserved</dt><dd><bdi>${gang.reservation}</bdi></dd>`}
        ${gang.domains.length > 0 && html`<dt>Domains</dt><dd><${Domains} domains=${gang.domains} /></dd>`}
      </dl>
      <${Command} text=${gang.command} />
    </div>
  </li>`;
}

function Domains({ domains }) {
  const most = Math.max(...domains.map((domain) => domain.members));
  return html`<ul class="domains">${domains.map((domain) => html`<li key=${`${domain.key}=${domain.name}`}>
    <${Name}>${domain.key}=${domain.name}<//>
    <${Meter} share=${domain.members / most} label=${counted(domain.members, 'member')} />
    <span class="number" aria-hidden="true">${count(domain.members)}</span>
  </li>`)}</ul>`;
}
