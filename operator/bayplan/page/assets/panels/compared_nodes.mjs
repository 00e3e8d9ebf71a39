// Maps of the nodes of two sides, with what differs between them. Both sides have the same nodes.

import { Component } from '../vendor/preact-11.2.0.mjs';
import { html, Name, Panel, Table } from '../elements.mjs';
import { routeTo } from '../routing.mjs';
import { count, counted, percent } from '../text.mjs';
import { NodeMap } from './node_map.mjs';
import { Fragmentation, Legend, placeOf } from './nodes.mjs';

export class ComparedNodes extends Component {
  constructor(props) {
    super(props);
    this.state = { selected: -1, resource: props.route.panel === 'nodes' ? props.route.query.get('resource') : '' };
    this.select = (selected) => this.setState({ selected });
    this.choose = ({ target }) => {
      history.replaceState(null, '', routeTo('nodes', [], { resource: target.value }));
      this.setState({ resource: target.value });
    };
  }

  render({ doc, sides, theme }, { selected, resource: wanted }) {
    if (!doc) return html`<${Panel} id="nodes" title="Map of nodes" busy=${true} />`;
    const resources = [...new Set(sides.flatMap(({ id }) => doc[id].resources.map(({ name }) => name)))];
    const resource = resources.includes(wanted) ? wanted : resources[0];
    const [before, after] = sides.map(({ id }) => doc[id]);
    const different = new Set(before.names.keys().filter((node) => before.used[resource]?.[node] !== after.used[resource]?.[node]));
    const note = `${counted(before.names.length, 'node')}, ${count(different.size)} differ in ${resource}`;
    return html`<${Panel} id="nodes" title="Map of nodes" note=${note} command=${before.command}>
      <div class="line">
        <label>Resource <select value=${resource} onChange=${this.choose}>${resources.map((name) => html`
          <option key=${name} value=${name}>${name}</option>`)}</select></label>
        <${Legend} ring=${different.size > 0 && 'differs'} />
      </div>
      <div class="sides">${sides.map((side) => html`<div key=${side.id}>
        <h3>${side.label}</h3>
        <${NodeMap} doc=${doc[side.id]} resource=${resource} theme=${theme} selected=${selected} onSelect=${this.select} room=${null}
          marked=${different} label=${`Map of ${counted(before.names.length, 'node')} by ${resource}, ${side.label}`} />
        <${Fragmentation} doc=${doc[side.id]} side=${side} />
      </div>`)}</div>
      <p id="node-keys" class="note">Point at a node, or use the arrow keys on a map.</p>
      <${Selected} doc=${doc} sides=${sides} resources=${resources} node=${selected} />
    <//>`;
  }
}

function Selected({ doc, sides, resources, node }) {
  if (node < 0) return html`<div class="box" role="status"><h3>Node</h3><p class="note">No node is selected.</p></div>`;
  const [first] = sides;
  const [zone, rack] = placeOf(doc[first.id], node);
  const columns = [{ title: 'In use' }, ...sides.map(({ label }) => ({ title: label, right: true }))];
  const rows = resources.map((name) => ({
    key: name,
    cells: [html`<${Name}>${name}<//>`, ...sides.map(({ id }) => shown(doc[id].used[name]?.[node]))],
  }));
  rows.push({ key: 'number of pods', cells: ['number of pods', ...sides.map(({ id }) => count(doc[id].pods[node]))] });
  return html`<div class="box" role="status">
    <h3>Node <${Name}>${doc[first.id].names[node]}<//></h3>
    <p class="note">${zone ? html`zone <${Name}>${zone}<//>` : 'no zone'}${rack ? html`, rack <${Name}>${rack}<//>` : ''}</p>
    <${Table} label="Use of the selected node" columns=${columns} rows=${rows} />
  </div>`;
}

function shown(level) {
  return level === undefined || level < 0 ? 'none' : percent(level / 1000);
}
