// Strip of key figures above the panels.

import { Age, Chip, Cut, html, Meter, Name, Pure, Stale } from '../elements.mjs';
import { count, percent } from '../text.mjs';

export class Overview extends Pure {
  render({ doc, at, side, failure }) {
    if (!doc) {
      return html`<section class="overview" aria-label="Overview" aria-busy=${failure ? 'false' : 'true'}>${failure
        ? html`<${Stale} failure=${failure} />`
        : html`<p class="empty">Waiting for the first documents.</p>`}</section>`;
    }
    const places = Object.entries(doc.places).filter(([, number]) => number > 0);
    return html`<section class="overview" aria-label=${side ? `Overview, ${side.label}` : 'Overview'}>
      ${side && html`<h2>${side.label}</h2>`}
      ${failure && html`<${Stale} failure=${failure} />`}
      <${Problems} problems=${doc.problems} />
      <dl class="figures">
        <div><dt>nodes</dt><dd class="number">${count(doc.nodes)}</dd></div>
        <div><dt>pods on nodes</dt><dd class="number">${count(doc.pods)}</dd></div>
        <div><dt>pending</dt><dd class="number">${count(doc.pending)}
          <p class="note">${places.map(([place, number]) => `${count(number)} ${place}`).join(', ')}</p></dd></div>
        <div><dt>gangs that wait</dt><dd class="number">${count(doc.gangsWaiting)}</dd></div>
        ${at !== null && html`<div><dt>up</dt><dd class="number"><${Age} seconds=${doc.uptimeSeconds} at=${at} />${doc.role && html`<p class="note">${doc.role}</p>`}</dd></div>`}
      </dl>
      <dl class="bars">
        ${doc.utilisation.map((each) => html`<${Bar} key=${each.resource} name=${each.resource} share=${each.allocatable ? each.used / each.allocatable : 0} text=${each.text} />`)}
        ${doc.devices.map((each) => html`<${Bar} key=${`driver ${each.driver}`} name=${each.driver} share=${each.devices ? each.inUse / each.devices : 0}
          text=${`${count(each.inUse)} / ${count(each.devices)} devices`} />`)}
      </dl>
      <ul class="objectives">${doc.objectives.map((each) => html`<li key=${each.name}>
        <${Chip} tone=${each.met === null ? 'quiet' : each.met ? 'good' : 'bad'}>${each.name}: ${each.value || 'no data'}<//></li>`)}
        ${doc.missing.map((each) => html`<li key=${each}><${Chip} tone="bad">${each}<//></li>`)}</ul>
    </section>`;
  }
}

/** Strip of what is wrong; nothing without problems. */
function Problems({ problems }) {
  if (!problems?.length) return null;
  return html`<div class="problems" role="region" aria-label="Problems"><${Cut} entries=${problems} first=${6} what="problems">
    ${(shown) => html`<ul>${shown.map((each) => html`<li key=${`${each.title} ${each.link}`}>
      <a href=${each.link}><span aria-hidden="true">✕ </span><bdi>${each.title}</bdi></a>
      ${each.text && html` <bdi class="note">${each.text}</bdi>`}</li>`)}</ul>`}
  <//></div>`;
}

function Bar({ name, share, text }) {
  return html`<div><dt><${Name}>${name}<//></dt><dd>
    <${Meter} share=${share} tone=${share >= 0.9 ? 'full' : ''} label=${`${percent(share)} in use`} />
    <span class="number" aria-hidden="true">${percent(share)}</span> <span class="note number">${text}</span></dd></div>`;
}
