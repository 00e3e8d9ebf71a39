// Room for a shape that the reader enters: how many such pods find room, on which nodes, in which domains.

import { Chip, Command, Cut, html, Name, Table } from '../elements.mjs';
import { Refreshing } from '../refreshing.mjs';
import { count, counted } from '../text.mjs';

export class Room extends Refreshing {
  constructor(props) {
    super(props);
    this.submit = (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      this.props.onChange({ room: String(fields.get('room')).trim(), count: fields.get('count'), key: fields.get('key') });
    };
    this.clear = () => this.props.onChange({ room: '', count: '', key: '' });
  }

  path({ query }) {
    if (!query.room) return '';
    const params = new URLSearchParams({ requests: query.room });
    if (query.count) params.set('count', query.count);
    if (query.key) params.set('key', query.key);
    return `room?${params}`;
  }

  componentDidUpdate(before, earlier) {
    super.componentDidUpdate(before);
    const { doc } = this.state;
    if (doc !== earlier.doc) this.props.onFound(doc && { perNode: new Map(doc.perNode) });
  }

  render({ doc: nodes, query }, { doc, error }) {
    const keys = [nodes.zoneLabel, nodes.rackLabel, 'kubernetes.io/hostname'].filter((key, at, all) => key && all.indexOf(key) === at);
    if (query.key && !keys.includes(query.key)) keys.push(query.key);
    return html`<div class="box">
      <h3>Room for a shape</h3>
      <form onSubmit=${this.submit} class="line">
        <label class="grow">Requests of one pod <input name="room" key=${query.room} value=${query.room} required autocomplete="off" spellcheck=${false}
          placeholder="cpu=4,memory=8Gi" /></label>
        <label>Pods <input name="count" key=${query.count} value=${query.count} type="number" min="1" class="short" /></label>
        <label class="grow">In one domain of <select name="key" key=${`${query.key} ${keys}`}>
          <option value="" selected=${!query.key}>any</option>
          ${keys.map((key) => html`<option key=${key} value=${key} selected=${key === query.key}>${key}</option>`)}
        </select></label>
        <button type="submit">Find room</button>
        ${query.room && html`<button type="button" onClick=${this.clear}>Clear</button>`}
      </form>
      <div role="status">
        ${error && html`<p class="problem"><${Chip} tone="bad">Not found<//> ${error}</p>`}
        ${doc && html`<${Found} doc=${doc} wanted=${Number(query.count) || 0} isDivided=${Boolean(query.key)} />`}
      </div>
      ${doc && html`<${Command} text=${doc.command} />`}
    </div>`;
  }
}

function Found({ doc, wanted, isDivided }) {
  const most = isDivided ? Math.max(0, ...doc.domains.map((domain) => domain.fits)) : doc.fits;
  const columns = [{ title: 'Domain' }, { title: 'Pods that fit', right: true }];
  const domains = [...doc.domains].sort((one, other) => other.fits - one.fits);
  return html`<p><strong>${count(doc.fits)}</strong> such ${doc.fits === 1 ? 'pod fits' : 'pods fit'} on ${counted(doc.nodes, 'node')}.
      ${wanted > 0 && html` <${Chip} tone=${most >= wanted ? 'good' : 'bad'}>${counted(wanted, 'pod')} ${most >= wanted ? 'fit' : 'do not fit'}${isDivided ? ' in one domain' : ''}<//>`}</p>
    ${doc.note && html`<p class="note"><bdi>${doc.note}</bdi></p>`}
    ${domains.length > 0 && html`<${Cut} entries=${domains} first=${8} what="domains">${(shown) => html`<${Table} label="Room by domain, most room first" columns=${columns}
      rows=${shown.map((domain) => ({ key: domain.name, cells: [html`<${Name}>${domain.name}<//>`, count(domain.fits)] }))} />`}<//>`}`;
}
