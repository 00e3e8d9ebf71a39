// Panel of nodes: the map by zone and rack, utilisation per resource, fragmentation, room for a shape.

import { Component } from '../vendor/preact-11.2.0.mjs';
import { Chip, html, Meter, Name, Panel, Table } from '../elements.mjs';
import { routeTo } from '../routing.mjs';
import { amountOf, count, counted, percent } from '../text.mjs';
import { flagsOf, NodeMap } from './node_map.mjs';
import { NodeCard } from './node_card.mjs';
import { Room } from './room.mjs';

export class Nodes extends Component {
  constructor(props) {
    super(props);
    this.state = { selected: -1, pointed: -1, room: null, query: {} };
    this.point = (pointed) => this.setState((state) => (state.pointed === pointed ? null : { pointed }));
    this.select = (selected) => {
      this.setState({ selected });
      this.change({ node: this.props.doc.names[selected] });
    };
    this.found = (room) => this.setState({ room });
    this.choose = (event) => this.change({ resource: event.target.value });
    this.change = (changed) => {
      const query = { ...this.query(), ...changed };
      // A pasted manifest is not part of the address.
      history.replaceState(null, '', routeTo('nodes', [], { ...query, isManifest: '' }));
      this.setState({ query });
    };
  }

  shouldComponentUpdate(props, state) {
    return state !== this.state || ['doc', 'route', 'theme', 'isLive', 'failure'].some((name) => props[name] !== this.props[name]);
  }

  componentWillReceiveProps({ route, doc }) {
    if (route !== this.props.route && route.panel === 'nodes') this.setState({ query: Object.fromEntries(route.query) });
    const isLinked = route !== this.props.route && route.panel === 'nodes';
    if (isLinked || doc?.names !== this.props.doc?.names) this.setState(({ query }) => ({ selected: doc ? doc.names.indexOf(query.node) : -1 }));
  }

  componentWillMount() {
    const { route, doc } = this.props;
    if (route.panel !== 'nodes') return;
    const query = Object.fromEntries(route.query);
    this.setState({ query, selected: doc ? doc.names.indexOf(query.node) : -1 });
  }

  query() {
    const { resource = '', node = '', room = '', pod = '', isManifest = '', count: number = '', key = '', profile = '' } = this.state.query;
    return { resource, node, room, pod, isManifest, count: number, key, profile };
  }

  render({ doc, source, theme, isLive, failure }, { selected, pointed, room }) {
    const query = this.query();
    const resource = doc?.resources.find((each) => each.name === query.resource) ?? doc?.resources[0];
    const note = doc && [counted(doc.names.length, 'node'), `${count(doc.unschedulable.length)} unschedulable`, `${count(doc.notReady.length)} not ready`].join(', ');
    return html`<${Panel} id="nodes" failure=${failure} title="Map of nodes" note=${note ?? ''} busy=${!doc} command=${doc?.command}>
      ${doc && resource && html`
        <div class="line">
          <label>Resource <select value=${resource.name} onChange=${this.choose}>${doc.resources.map((each) => html`
            <option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></label>
          <${Legend} ring=${room !== null && 'has room'} />
        </div>
        <div class="split">
          <div>
            <${NodeMap} doc=${doc} resource=${resource.name} theme=${theme} selected=${selected} onSelect=${this.select} onPoint=${this.point}
              room=${room && room.perNode} label=${`Map of ${counted(doc.names.length, 'node')} by ${resource.name}`} />
            <p id="node-keys" class="note">${pointed >= 0 && pointed < doc.names.length
              ? html`<${Name}>${doc.names[pointed]}<//>: ${percent(doc.used[resource.name][pointed] / 1000)} ${resource.name}, ${counted(doc.pods[pointed], 'pod')}`
              : 'Select a node with a click, or with the arrow keys on the map.'}</p>
          </div>
          <div class="aside">
            <${Selected} doc=${doc} node=${selected} room=${room} source=${source} isLive=${isLive} />
            ${!source.isStatic && html`<${Room} doc=${doc} source=${source} isLive=${isLive} query=${query} onChange=${this.change} onFound=${this.found} />`}
            <${Fragmentation} doc=${doc} />
          </div>
        </div>`}
    <//>`;
  }
}

/** Legend of the map; `ring` is the meaning of a ring, or false. */
export function Legend({ ring }) {
  return html`<ul class="legend" aria-label="Legend of the map">
    ${[1, 2, 3, 4, 5].map((step) => html`<li key=${step}><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="track" width="12" height="12" />
      <rect class=${`load-${step}`} y=${12 - step * 2.4} width="12" height=${step * 2.4} /></svg>${`${step * 20 - 20} to ${step * 20} %`}</li>`)}
    <li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="hollow" x=".5" y=".5" width="11" height="11" /></svg>has none</li>
    <li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="track" width="12" height="12" /><path class="cross" d="M0 12 12 0" /></svg>unschedulable</li>
    <li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="track" width="12" height="12" /><path class="cross" d="M0 12 12 0M0 0l12 12" /></svg>not ready</li>
    ${ring && html`<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="ring" x="1" y="1" width="10" height="10" /></svg>${ring}</li>`}
  </ul>`;
}

/** Return the names of zone and rack of a node. */
export function placeOf(doc, node) {
  for (const zone of doc.zones) for (const rack of zone.racks) if (rack.nodes.includes(node)) return [zone.name, rack.name];
  return ['', ''];
}

function Selected({ doc, node, room, source, isLive }) {
  if (node < 0) return html`<div class="box" role="status"><h3>Node</h3><p class="note">No node is selected.</p></div>`;
  const [zone, rack] = placeOf(doc, node);
  const flags = flagsOf(doc)[node];
  return html`<div class="box" role="status">
    <h3>Node <${Name}>${doc.names[node]}<//></h3>
    <p class="note">${zone ? html`zone <${Name}>${zone}<//>` : 'no zone'}${rack ? html`, rack <${Name}>${rack}<//>` : ''}; ${counted(doc.pods[node], 'pod')}${
      room ? `; room for ${count(room.perNode.get(node) ?? 0)}` : ''}</p>
    ${flags > 0 && html`<p class="chips">${flags & 1 ? html`<${Chip} tone="warn">unschedulable<//>` : ''}${flags & 2 ? html`<${Chip} tone="bad">not ready<//>` : ''}</p>`}
    ${!source.isStatic && html`<${NodeCard} name=${doc.names[node]} source=${source} isLive=${isLive} />`}
    ${source.isStatic && html`<dl class="bars">${doc.resources.map(({ name }) => {
      const level = doc.used[name][node];
      return html`<div key=${name}><dt><${Name}>${name}<//></dt><dd>${level < 0 ? 'none' : html`
        <${Meter} share=${level / 1000} label=${`${percent(level / 1000)} in use`} /> <span class="number" aria-hidden="true">${percent(level / 1000)}</span>`}</dd></div>`;
    })}</dl>`}
  </div>`;
}

/** Free amounts, on a side of a comparison. */
export function Fragmentation({ doc, side }) {
  if (!doc.fragmentation.length) return null;
  const columns = [{ title: 'Resource' }, { title: 'Free', right: true }, { title: 'Largest', right: true }, { title: 'Unusable', right: true }];
  return html`<div class="box"><h3>Fragmentation</h3>
    <${Table} label=${`Free amounts and how much of them is unusable by waiting pods${side ? `, ${side.label}` : ''}`} columns=${columns} rows=${doc.fragmentation.map((each) => ({
      key: each.resource,
      cells: [html`<${Name}>${each.resource}<//>`, amountOf(each.resource, each.free), amountOf(each.resource, each.largestFree), percent(each.unusableShare, 1)],
    }))} /><p class="note">Largest: the largest free amount of one node. Unusable: the share on nodes where ${doc.unusableBy ?? 'waiting pods'} do not fit.</p></div>`;
}
