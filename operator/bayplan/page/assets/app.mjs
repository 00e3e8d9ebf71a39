// The page: follows the documents of a source, and shows the panels, the state of the connection and the login.

import { Component, h, render } from './vendor/preact-11.2.0.mjs';
import { Banner, Login } from './connection.mjs';
import { applyDelta } from './document_delta.mjs';
import { Chip, html, timeOf } from './elements.mjs';
import { PANELS, parseRoute, routeTo } from './routing.mjs';
import { count } from './text.mjs';
import { appliedTheme, nextTheme, setTheme, storedTheme, watchTheme } from './theme.mjs';

const STREAMED = ['overview', 'pending', 'gangs', 'reservations', 'nodes', 'profiles', 'plans', 'rates', 'watches'];
const TITLES = { pending: 'Pending', work: 'One pod or gang', gangs: 'Gangs', reservations: 'Reservations', nodes: 'Nodes', profiles: 'Profiles', plans: 'Plans', rates: 'Rates', watches: 'Watches' };
const READER = ['wheel', 'keydown', 'touchstart', 'pointerdown'];

/**
 * Show the page in an element.
 *
 * The source has `stream(panels, onEvent, onState)`, which calls onEvent(name, document, time) and returns a function that ends it, and the asynchronous
 * `read(path)`, which returns a document. `login(token)`, `retry()` and `title` are optional. `isStatic` marks a source whose
 * documents never change, and which nothing else can be requested from; its `taken` is the time for which their ages hold, "" if
 * they have none; `facts` and `summary` are shown above its panels.
 * The panels are components by name; only these are shown.
 */
export function mount(root, source, panels) {
  root.replaceChildren();
  render(h(Page, { source, panels }), root);
}

class Page extends Component {
  constructor(props) {
    super(props);
    this.state = { docs: {}, at: {}, failures: {}, connection: { kind: 'connecting', attempt: 0 }, route: parseRoute(location.hash), theme: storedTheme(), applied: appliedTheme() };
    // Until the reader scrolls, the panel of the permalink stays in view while the panels above it change their size.
    this.pinned = this.state.route.panel;
    this.event = (name, data, at) => this.receive(name, data, at ?? timeOf(this.props.source));
    this.connected = (connection) => this.setState({ connection });
    this.turn = () => {
      const theme = nextTheme(this.state.theme);
      setTheme(theme);
      this.setState({ theme, applied: appliedTheme() });
    };
    this.navigate = () => {
      const route = parseRoute(location.hash);
      const before = this.state.route;
      this.setState({ route }, () => {
        if (route.panel && (route.panel !== before.panel || route.path.join('/') !== before.path.join('/'))) this.reveal(true);
      });
    };
    this.unpin = () => { this.pinned = ''; };
    // A link to the panel that the address already names changes no address.
    this.again = (event) => {
      const link = event.target.closest?.('a[href^="#/"]');
      if (link && link.getAttribute('href') === location.hash) this.reveal(true);
    };
  }

  componentDidMount() {
    this.end = this.props.source.stream(STREAMED.filter((name) => this.props.panels[name]), this.event, this.connected);
    addEventListener('hashchange', this.navigate);
    for (const event of READER) addEventListener(event, this.unpin, { passive: true });
    this.sizes = new ResizeObserver(() => this.pinned && this.reveal(false));
    this.sizes.observe(document.body);
    this.unwatch = watchTheme(() => this.setState({ applied: appliedTheme() }));
  }

  componentWillUnmount() {
    this.end();
    this.unwatch();
    this.sizes.disconnect();
    removeEventListener('hashchange', this.navigate);
    for (const event of READER) removeEventListener(event, this.unpin);
  }

  componentDidUpdate() {
    if (this.pinned) this.reveal(false);
  }

  reveal(isFocused) {
    const { panel, path } = this.state.route;
    const card = panel === 'profiles' && path.length ? document.getElementById(`profile-${path[0]}`) : null;
    const heading = document.querySelector(`#${panel} h2`);
    (card ?? document.getElementById(panel))?.scrollIntoView({ block: 'start' });
    if (isFocused) heading?.focus({ preventScroll: true });
  }

  receive(name, data, at) {
    if (name === 'nodesDelta') {
      const nodes = applyDelta(this.state.docs.nodes, data);
      if (nodes) this.keep('nodes', nodes, at);
      else this.readNodes();
    } else if (name === 'failure') {
      this.setState(({ failures }) => ({ failures: { ...failures, [data.panel]: data.error } }));
    } else if (STREAMED.includes(name)) {
      this.keep(name, data, at);
    }
  }

  keep(name, doc, time) {
    this.setState(({ docs, at, failures: { [name]: ended, ...failures } }) => ({
      docs: { ...docs, [name]: doc }, at: { ...at, [name]: time }, failures,
    }));
  }

  async readNodes() {
    if (this.isReading) return;
    this.isReading = true;
    try {
      this.keep('nodes', await this.props.source.read('nodes'), timeOf(this.props.source));
    } catch {
      // The next delta reads it again, or a new stream sends it.
    }
    this.isReading = false;
  }

  render({ source, panels }, { docs, at, failures, connection, route, theme, applied }) {
    const isLive = connection.kind === 'live';
    const isLocked = (connection.kind === 'login' || connection.kind === 'forbidden') && source.login;
    const hasDocs = Object.keys(docs).length > 0;
    const parts = { source, route, isLive, theme: applied };
    const failure = (name) => (name in failures ? { error: failures[name], at: at[name] } : undefined);
    const { overview: Overview, pending: Pending, work: Work, gangs: Gangs, reservations: Reservations, nodes: Nodes, profiles: Profiles, plans: Plans, rates: Rates, watches: Watches } = panels;
    return html`<div onClick=${this.again}>
      <header class="top">
        <h1>${source.title ?? 'Bayplan'} ${docs.overview?.version && html`<small>${docs.overview.version}${docs.overview.cluster.version ? `, Kubernetes ${docs.overview.cluster.version}` : ''}</small>`}</h1>
        <${Connection} connection=${connection} failed=${Object.keys(failures)} />
        <button type="button" class="small" onClick=${this.turn}>Theme: ${theme}</button>
        <nav aria-label="Panels">${PANELS.filter((panel) => panels[panel] && (panel !== 'plans' || docs.plans?.isServed)).map((panel) => html`<a key=${panel} href=${routeTo(panel)} aria-current=${route.panel === panel ? 'location' : undefined}>
          ${TITLES[panel]}${badge(panel, docs)}</a>`)}</nav>
      </header>
      <main>
        ${source.facts?.length > 0 && html`<p class="report-facts">${source.facts.map(([name, value]) => html`<span key=${name}>${name} <bdi>${value}</bdi></span>`)}</p>`}
        ${source.summary?.map((text) => html`<p key=${text} class="report-summary"><bdi>${text}</bdi></p>`)}
        <${Banner} connection=${connection} at=${at.overview} onRetry=${source.retry && (() => source.retry())} />
        ${isLocked && html`<${Login} connection=${connection} onLogin=${(token) => source.login(token)} />`}
        ${(!isLocked || hasDocs) && html`
          ${Overview && html`<${Overview} doc=${docs.overview} at=${at.overview} failure=${failure('overview')} />`}
          ${Pending && html`<${Pending} doc=${docs.pending} at=${at.pending} failure=${failure('pending')} hasProfiles=${Boolean(Profiles)} />`}
          ${Work && html`<${Work} ...${parts} />`}
          ${Gangs && html`<${Gangs} doc=${docs.gangs} at=${at.gangs} failure=${failure('gangs')} />`}
          ${Reservations && html`<${Reservations} doc=${docs.reservations} failure=${failure('reservations')} />`}
          ${Nodes && html`<${Nodes} doc=${docs.nodes} failure=${failure('nodes')} ...${parts} />`}
          ${Profiles && html`<${Profiles} doc=${docs.profiles} failure=${failure('profiles')} chosen=${route.panel === 'profiles' ? route.path[0] : undefined} opened=${route.panel === 'profiles' ? route.path[1] : undefined} />`}
          ${Plans && docs.plans?.isServed && html`<${Plans} doc=${docs.plans} failure=${failure('plans')} />`}
          ${Rates && html`<${Rates} doc=${docs.rates} failure=${failure('rates')} theme=${applied} isStatic=${source.isStatic} />`}
          ${Watches && html`<${Watches} doc=${docs.watches} failure=${failure('watches')} />`}`}
      </main>
    </div>`;
  }
}

const STATES = { live: ['good', 'live'], connecting: ['quiet', 'connecting'], login: ['warn', 'login needed'], paused: ['quiet', 'paused'] };

function Connection({ connection, failed }) {
  const report = connection.kind === 'static' && ['info', connection.taken ? `report of ${connection.taken}` : 'report'];
  const [tone, text] = report || (STATES[connection.kind] ?? ['bad', 'not connected']);
  const names = failed.map((name) => (name === 'overview' ? 'overview' : TITLES[name].toLowerCase()));
  return html`<p class="connection" role="status">${connection.kind === 'live' && failed.length
    ? html`<${Chip} tone="bad">stale: ${names.join(', ')}<//>`
    : html`<${Chip} tone=${tone}>${text}<//>`}</p>`;
}

function badge(panel, docs) {
  const number = { pending: docs.pending?.total, gangs: docs.gangs?.total, reservations: docs.reservations?.isOn ? docs.reservations.total : undefined, nodes: docs.nodes?.names?.length, profiles: docs.profiles?.profiles.length, plans: docs.plans?.plans.length }[panel];
  return number === undefined ? '' : html` <span class="badge number">${count(number)}</span>`;
}
