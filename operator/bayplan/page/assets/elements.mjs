// Parts that all panels use. All text passes through `html`, which escapes control characters and sets it only as text.

import { Component, createElement } from './vendor/preact-11.2.0.mjs';
import htm from './vendor/htm-3.1.1.mjs';
import { reachable } from './commands.mjs';
import { count, duration, printable } from './text.mjs';

function fit(value) {
  if (typeof value === 'string') return printable(value);
  return Array.isArray(value) ? value.map(fit) : value;
}

function element(type, props, ...children) {
  if (typeof type === 'function') return createElement(type, props, ...children);
  let shown = props;
  if (props) {
    shown = {};
    for (const name in props) shown[name] = typeof props[name] === 'string' ? printable(props[name]) : props[name];
  }
  return createElement(type, shown, ...children.map(fit));
}

/** Template tag for elements. Strings from the cluster are escaped; they never become markup. */
export const html = htm.bind(element);

const tickers = new Set();
let timer = 0;

function tick() {
  for (const ticker of tickers) ticker();
}

/** Component that renders again each second while it is mounted. */
class Ticking extends Component {
  componentDidMount() {
    this.ticker = () => this.setState({ now: performance.now() });
    tickers.add(this.ticker);
    if (!timer) timer = setInterval(tick, 1000);
  }

  componentWillUnmount() {
    tickers.delete(this.ticker);
    if (!tickers.size) {
      clearInterval(timer);
      timer = 0;
    }
  }
}

const FIXED = Infinity;

/** Return the time `at` of a document that was just read: null if it has no ages, fixed if they no longer change. */
export function timeOf(source) {
  if (!source.isStatic) return performance.now();
  return source.taken ? FIXED : null;
}

/** Age in words. `seconds` is the age at `at`, a time of `timeOf`. */
export class Age extends Ticking {
  render({ seconds, at }) {
    return html`<span class="number">${duration(at === FIXED ? seconds : seconds + (performance.now() - at) / 1000)}</span>`;
  }
}

/** Seconds until `at`, a time of performance.now(). */
export class Countdown extends Ticking {
  render({ at }) {
    return html`<span class="number">${Math.max(0, Math.ceil((at - performance.now()) / 1000))} s</span>`;
  }
}

/** Component that renders again only if a property changed. */
export class Pure extends Component {
  shouldComponentUpdate(props, state) {
    if (state !== this.state) return true;
    for (const name in props) if (props[name] !== this.props[name]) return true;
    for (const name in this.props) if (!(name in props)) return true;
    return false;
  }
}

/** Name of an object in the cluster: isolated, so that its writing direction does not reorder the text around it. */
export function Name({ children, mono = true }) {
  return html`<bdi class=${mono ? 'mono' : ''}>${children}</bdi>`;
}

const SYMBOLS = { good: '✓', bad: '✕', warn: '!', quiet: '–', info: 'i' };

/** Short state with a symbol, so that its colour is not the only difference. */
export function Chip({ tone = 'quiet', children }) {
  return html`<span class=${`chip ${tone}`}><span aria-hidden="true">${SYMBOLS[tone]}</span> ${children}</span>`;
}

/** Command with a button that copies it as shown; it reaches the operator that serves the page. */
export class Command extends Component {
  constructor(props) {
    super(props);
    this.state = { feedback: '' };
    this.copy = async () => {
      const text = printable(reachable(this.props.text));
      let feedback = 'copied';
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        feedback = this.select() ? 'selected: press Ctrl+C' : 'cannot copy';
      }
      this.setState({ feedback });
      clearTimeout(this.timeout);
      this.timeout = setTimeout(() => this.setState({ feedback: '' }), 2000);
    };
  }

  componentWillUnmount() {
    clearTimeout(this.timeout);
  }

  select() {
    const selection = getSelection();
    if (!selection || !this.code) return false;
    selection.selectAllChildren(this.code);
    return true;
  }

  render({ text: command }, { feedback }) {
    if (!command) return null;
    const text = reachable(command);
    return html`<div class="command">
      <code tabindex="0" ref=${(code) => { this.code = code; }}>${text}</code>
      <button type="button" class="small" onClick=${this.copy} aria-label=${`Copy command: ${text}`}>
        ${feedback || 'Copy'}
      </button>
      <span class="hidden" role="status">${feedback}</span>
    </div>`;
  }
}

/** Heading with a permalink, the command that gives the same, and the content of a panel, or of one of its sides. */
export function Panel({ id, side, title, note, command, commands, failure, children, busy = false }) {
  const lines = commands ?? (command ? [command] : []);
  const own = side ? `${id}-${side.id}` : id;
  return html`<section class="panel" id=${own} aria-labelledby=${`${own}-title`} aria-busy=${busy && !failure ? 'true' : 'false'}>
    <header>
      <h2 id=${`${own}-title`} tabindex="-1">
        ${side ? `${title}, ${side.label}` : title} <a class="anchor" href=${`#/${id}`} aria-label=${`Permalink to ${title}`}>#</a>
      </h2>
      <p class="note">${note}</p>
      <div class="commands">${lines.map((line) => html`<${Command} key=${line} text=${line} />`)}</div>
    </header>
    ${failure && html`<${Stale} failure=${failure} />`}
    ${children}
  </section>`;
}

/** Why a panel cannot be built; `at` is the time of its last document, if there is one. */
export function Stale({ failure: { error, at } }) {
  return html`<p class="problem stale" role="alert"><${Chip} tone="bad">Stale<//> This panel cannot be built: <bdi>${error}</bdi>.
    ${at ? html` It shows the state of <${Age} seconds=${0} at=${at} /> ago.` : ''}</p>`;
}

/** Table. A column is {title, right, wide}; a row is {key, cells, tone}. `head` marks the first cell as heading of its row. */
export function Table({ label, columns, rows, head = true }) {
  const style = (column) => [column.right ? 'right' : '', column.wide ? 'wide' : ''].join(' ').trim();
  // On a phone, the cells of a row with long texts are below each other.
  const isStacked = columns.some((column) => column.wide);
  const title = (at) => (typeof columns[at].title === 'string' ? columns[at].title : undefined);
  return html`<div class="scroll" role="region" aria-label=${label} tabindex="0"><table class=${isStacked ? 'stacked' : ''}>
    <caption class="hidden">${label}</caption>
    <thead><tr>${columns.map((column) => html`<th key=${column.title} scope="col" class=${style(column)}>${column.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.key} class=${row.tone ?? ''}>${row.cells.map((cell, at) =>
      head && at === 0
        ? html`<th key=${at} scope="row" data-title=${title(at)} class=${style(columns[at])}>${cell}</th>`
        : html`<td key=${at} data-title=${title(at)} class=${style(columns[at])}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** The first entries of a list, and a button that shows as many more. */
export class Cut extends Component {
  constructor(props) {
    super(props);
    this.state = { shown: props.first ?? 20 };
    this.more = () => this.setState(({ shown }) => ({ shown: shown + (this.props.step ?? 100) }));
  }

  render({ entries, children, what, omitted = 0 }, { shown }) {
    const left = entries.length - shown;
    return html`${children(entries.slice(0, shown))}
      ${left > 0 && html`<button type="button" class="more" onClick=${this.more}>
        ${`Show ${count(Math.min(left, this.props.step ?? 100))} more of ${count(left)}`}<span class="hidden"> ${what}</span>
      </button>`}
      ${left <= 0 && omitted > 0 && html`<p class="note">${count(omitted)} more ${what} are not sent; use the command.</p>`}`;
  }
}

/** Horizontal bar of a share of 0 to 1 with its text. */
export function Meter({ share, label, tone = '' }) {
  const width = Math.max(0, Math.min(1, share || 0)) * 100;
  return html`<span class=${`meter ${tone}`} role="img" aria-label=${label}>
    <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="100" height="6" /><rect class="value" width=${width} height="6" />
    </svg></span>`;
}

/** Text for a panel without content. */
export function Empty({ children }) {
  return html`<p class="empty">${children}</p>`;
}
