// Panel of one pod or gang: why it is or is not scheduled.

import { Age, Chip, Command, Cut, Empty, html, Name, Panel, Table } from '../elements.mjs';
import { Refreshing } from '../refreshing.mjs';
import { routeTo } from '../routing.mjs';
import { GangFacts } from './gang_explanation.mjs';
import { PodFacts } from './pod_explanation.mjs';

export class Work extends Refreshing {
  constructor(props) {
    super(props);
    this.show = (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      const [namespace, ...rest] = String(fields.get('name')).trim().split('/');
      const name = rest.length ? [namespace, rest.join('/')] : ['default', namespace];
      location.hash = routeTo('work', [fields.get('kind'), ...name]);
    };
  }

  path({ route }) {
    if (route.panel !== 'work' || route.path.length < 3) return this.state.path;
    const [kind, namespace, ...name] = route.path;
    const query = new URLSearchParams({ namespace, [kind === 'gang' ? 'podgroup' : 'pod']: name.join('/') });
    for (const part of ['api', 'side']) if (route.query.get(part)) query.set(part, route.query.get(part));
    return `work?${query}`;
  }

  render({ source }, { doc, at, error, path }) {
    const params = new URLSearchParams(path.slice(5));
    const isGang = params.has('podgroup');
    const side = source.sides?.find(({ id }) => id === params.get('side'));
    const shown = path ? `${params.get('namespace')}/${params.get(isGang ? 'podgroup' : 'pod')}` : '';
    return html`<${Panel} id="work" title="One pod or gang" busy=${Boolean(path && !doc && !error)} command=${doc?.command}
      note=${shown && html`${isGang ? 'gang' : 'pod'} <${Name}>${shown}<//>${side ? `, ${side.label}` : ''}`}>
      ${!source.isStatic && html`<form class="line" onSubmit=${this.show}>
        <label>Kind <select name="kind" key=${`${path}-kind`}>
          <option value="pod" selected=${!isGang}>Pod</option><option value="gang" selected=${isGang}>Gang</option>
        </select></label>
        <label class="grow">Name <input name="name" key=${path} required placeholder="namespace/name" autocomplete="off"
          spellcheck=${false} value=${shown} /></label>
        <button type="submit">Explain</button>
      </form>`}
      ${error && html`<p class="problem" role="alert"><${Chip} tone="bad">Not explained<//> ${error}</p>`}
      ${!path && html`<${Empty}>Choose an example in a group of pending work${source.isStatic ? '' : ', or enter a name'}.<//>`}
      ${doc && html`<div key=${path}>
        ${doc.kind === 'gang' ? html`<${GangFacts} gang=${doc.explanation} />` : html`<${PodFacts} pod=${doc.explanation} />`}
        ${at !== null && html`<${Attempts} attempts=${doc.attempts} at=${at} isStatic=${source.isStatic} />`}
      </div>`}
    <//>`;
  }
}

const RESULTS = { scheduled: 'good', bound: 'good', unschedulable: 'bad', rejected: 'bad', error: 'bad' };

function Attempts({ attempts, at, isStatic }) {
  const columns = [{ title: 'Ago', right: true }, { title: 'Result' }, { title: 'Profile' }, { title: 'Node' }, { title: 'Message', wide: true }];
  return html`<h3>Attempts</h3>
    ${attempts.length === 0 && html`<p class="note">${isStatic
      ? 'No attempt is recorded. Attempts are recorded only while the page is served.'
      : 'No attempt since the operator started is recorded.'}</p>`}
    ${attempts.length > 0 && html`<${Cut} entries=${attempts} first=${5} step=${20} what="attempts">
      ${(shown) => html`<${Table} label="Attempts, newest first" columns=${columns} rows=${shown.map((attempt, number) => ({
        key: number,
        cells: [
          html`<${Age} seconds=${attempt.secondsAgo} at=${at} />`,
          html`<${Chip} tone=${RESULTS[attempt.result.toLowerCase()] ?? 'quiet'}>${attempt.result}<//>`,
          html`<${Name}>${attempt.profile}<//>`,
          attempt.node ? html`<${Name}>${attempt.node}<//>` : '-',
          attempt.message || '-',
        ],
      }))} />`}
    <//>`}`;
}
