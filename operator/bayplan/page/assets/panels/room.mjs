// Room for copies of a pod: with requests that the reader types, of an existing pod, or of a pasted manifest.

import { Chip, Command, Cut, html, Name, Table } from '../elements.mjs';
import { Refreshing } from '../refreshing.mjs';
import { count, counted } from '../text.mjs';

/** Properties: doc (of the nodes), source, isLive, query {room, pod, count, key, profile}, onChange, onFound. */
export class Room extends Refreshing {
  constructor(props) {
    super(props);
    this.manifest = '';
    this.submit = (event) => {
      event.preventDefault();
      const fields = new FormData(event.target);
      const text = (name) => String(fields.get(name) ?? '').trim();
      const manifest = text('manifest');
      const isNew = manifest !== this.manifest;
      this.manifest = manifest;
      // A pod is namespace/name; the names of resources have a slash only before an equals sign.
      const isPod = /^[^=,]+\/[^=,]+$/.test(text('room'));
      this.props.onChange({
        room: manifest || isPod ? '' : text('room'), pod: !manifest && isPod ? text('room') : '', isManifest: manifest ? 'yes' : '',
        count: text('count'), key: text('key'), profile: text('profile'),
      });
      if (manifest && isNew) setTimeout(this.refresh);
    };
    this.clear = () => {
      this.manifest = '';
      this.props.onChange({ room: '', pod: '', isManifest: '', count: '', key: '', profile: '' });
    };
  }

  path({ query }) {
    if (!query.room && !query.pod && !(query.isManifest && this.manifest)) return '';
    const params = new URLSearchParams();
    for (const [name, value] of [['requests', query.room], ['pod', query.pod], ['count', query.count], ['key', query.key], ['profile', query.profile]]) {
      if (value) params.set(name, value);
    }
    return `room?${params}`;
  }

  body() {
    return this.props.query.isManifest ? this.manifest : '';
  }

  componentDidUpdate(before, earlier) {
    super.componentDidUpdate(before);
    const { doc } = this.state;
    if (doc !== earlier.doc) this.props.onFound(doc && { perNode: new Map(doc.perNode) });
  }

  render({ doc: nodes, query }, { doc, error }) {
    const keys = [nodes.zoneLabel, nodes.rackLabel, 'kubernetes.io/hostname'].filter((key, at, all) => key && all.indexOf(key) === at);
    if (query.key && !keys.includes(query.key)) keys.push(query.key);
    const profiles = [...new Set([...(doc?.profiles ?? []), ...(query.profile ? [query.profile] : [])])];
    const shown = query.pod || query.room;
    return html`<div class="box">
      <h3>Room for a pod</h3>
      <form onSubmit=${this.submit} class="line">
        <label class="grow">Requests of one pod, or namespace/name of a pod <input name="room" key=${shown} value=${shown} autocomplete="off" spellcheck=${false}
          placeholder="cpu=4,memory=8Gi" /></label>
        <details class="grow" open=${Boolean(query.isManifest)}><summary>Paste a manifest</summary>
          <label>Pod, Deployment or Job <textarea name="manifest" rows="6" spellcheck=${false}></textarea></label></details>
        <label>Pods <input name="count" key=${query.count} value=${query.count} type="number" min="1" class="short" /></label>
        <label class="grow">In one domain of <select name="key" key=${`${query.key} ${keys}`}>
          <option value="" selected=${!query.key}>any</option>
          ${keys.map((key) => html`<option key=${key} value=${key} selected=${key === query.key}>${key}</option>`)}
        </select></label>
        ${profiles.length > 1 && html`<label class="grow">Profile <select name="profile" key=${`${query.profile} ${profiles}`}>
          <option value="" selected=${!query.profile}>that of the pod</option>
          ${profiles.map((name) => html`<option key=${name} value=${name} selected=${name === query.profile}>${name}</option>`)}
        </select></label>`}
        <button type="submit">Find room</button>
        ${(shown || query.isManifest) && html`<button type="button" onClick=${this.clear}>Clear</button>`}
      </form>
      <div role="status">
        ${error && html`<p class="problem"><${Chip} tone="bad">Not found<//> ${error}</p>`}
        ${doc && html`<${Found} doc=${doc} />`}
      </div>
      ${doc && html`<${Command} text=${doc.command} />`}
    </div>`;
  }
}

function Found({ doc }) {
  const requests = Object.entries(doc.requests).map(([name, amount]) => `${amount} ${name}`).join(', ');
  return html`<p><strong>${count(doc.fits)}</strong> such ${doc.fits === 1 ? 'pod has' : 'pods have'} room on ${counted(doc.nodes, 'feasible node')}.
      ${doc.copies && html` <${Copies} copies=${doc.copies} />`}</p>
    <p class="note"><${Name}>${doc.pod}<//>${requests && doc.pod.includes('/') ? html` requests <bdi>${requests}</bdi>` : ''}, profile <${Name}>${doc.profile}<//></p>
    ${doc.message && html`<p class="quote"><bdi>${doc.message}</bdi></p>`}
    ${doc.copies?.message && doc.copies.message !== doc.message && html`<p class="quote">The next pod: <bdi>${doc.copies.message}</bdi></p>`}
    ${doc.rejected.length > 0 && html`<ul class="plain note">${doc.rejected.map(([reason, nodes]) => html`<li key=${reason}>
      <span class="number">${count(nodes)}</span> × <bdi>${reason}</bdi></li>`)}</ul>`}
    <${Domains} domains=${doc.domains} />
    <${Nodes} copies=${doc.copies} />
    <p class="note"><bdi>${doc.note}</bdi></p>`;
}

function Copies({ copies: { wanted, fits, domain } }) {
  const where = domain ? html` in <${Name}>${domain}<//>` : '';
  return html`<${Chip} tone=${fits >= wanted ? 'good' : 'bad'}>${fits >= wanted
    ? `${counted(wanted, 'pod')} ${wanted === 1 ? 'fits' : 'fit'}`
    : `${count(fits)} of ${counted(wanted, 'pod')} ${fits === 1 ? 'fits' : 'fit'}`}${where}<//>`;
}

function Domains({ domains }) {
  if (!domains.length) return null;
  const columns = [{ title: 'Domain' }, { title: 'By free amounts', right: true }, { title: 'In the dry run', right: true }];
  return html`<${Cut} entries=${domains} first=${8} what="domains">${(shown) => html`<${Table} label="Room by domain, most room first" columns=${columns}
    rows=${shown.map((domain) => ({ key: domain.name, cells: [html`<${Name}>${domain.name}<//>`, count(domain.fits), count(domain.dryRun)] }))} />`}<//>`;
}

function Nodes({ copies }) {
  if (!copies?.nodes.length) return null;
  const columns = [{ title: 'Node' }, { title: 'Pods in the dry run', right: true }];
  return html`<${Cut} entries=${copies.nodes} first=${8} what="nodes">${(shown) => html`<${Table} label="Nodes of the dry run, most pods first" columns=${columns}
    rows=${shown.map(([node, pods]) => ({ key: node, cells: [html`<${Name}>${node}<//>`, count(pods)] }))} />`}<//>`;
}
