// Line chart over time. The second series is dashed, so that colour is not the only difference.

import { Component } from '../vendor/preact-11.2.0.mjs';
import UPlot from '../vendor/uplot-1.6.32.mjs';
import { html } from '../elements.mjs';
import { localTime } from '../text.mjs';

const HEIGHT = 170;

function decades(_, low, high) {
  return low > 0 ? UPlot.rangeLog(low, high, 10, true) : [0.001, 1];
}

function onlyDecades(_, values) {
  return values.map((value) => (Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-6 ? value : null));
}

/** Return the points without a neighbour: no line is drawn to them. */
function alone(plot, series) {
  const values = plot.data[series];
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
}

/** Properties: title, series [{label}], data [times, values of each series], format(value), theme, isLog, isStatic. */
export class Chart extends Component {
  constructor(props) {
    super(props);
    this.state = { at: null };
  }

  shouldComponentUpdate(props, state) {
    return state !== this.state || props.data[0] !== this.props.data[0] || props.theme !== this.props.theme;
  }

  componentDidMount() {
    this.build();
    this.observer = new ResizeObserver(() => this.plot.setSize({ width: this.width(), height: HEIGHT }));
    this.observer.observe(this.box);
  }

  componentWillUnmount() {
    this.observer.disconnect();
    this.plot.destroy();
  }

  componentDidUpdate(before) {
    if (before.theme !== this.props.theme) {
      this.plot.destroy();
      this.build();
    } else if (before.data[0] !== this.props.data[0]) {
      this.plot.setData(this.props.data);
    }
  }

  point(at) {
    if (at !== this.state.at) this.setState({ at });
  }

  width() {
    return Math.max(200, Math.floor(this.box.clientWidth));
  }

  build() {
    const { series, data, format } = this.props;
    const style = getComputedStyle(this.box);
    const colour = (name) => style.getPropertyValue(name).trim();
    const font = `11px ${style.fontFamily}`;
    const axis = { stroke: colour('--quiet'), font, grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false } };
    const top = (_, low, high) => [0, high > 0 ? high * 1.1 : 1];
    const y = this.props.isLog ? { distr: 3, range: decades } : { range: top };
    const grid = this.props.isLog ? { ...axis.grid, filter: onlyDecades } : axis.grid;
    const time = (_, times, __, ___, step) => times.map((each) => localTime(each).slice(11, step < 60 ? 19 : 16));
    this.plot = new UPlot({
      width: this.width(),
      height: HEIGHT,
      padding: [8, 8, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { size: 5 } },
      scales: { y },
      axes: [{ ...axis, size: 26, space: 70, values: time }, { ...axis, grid, size: 58, space: 28, values: (_, values) => values.map((value) => (value === null ? '' : format(value))) }],
      series: [{}, ...series.map(({ label }, at) => ({ label, stroke: colour(`--series-${at + 1}`), width: 1.5, dash: at ? [5, 3] : undefined, points: { size: 4, fill: colour(`--series-${at + 1}`), filter: alone } }))],
      hooks: { setCursor: [(plot) => this.point(plot.cursor.idx ?? null)] },
    }, data, this.box);
  }

  render({ title, series, data, format, isStatic }, { at }) {
    const point = at ?? data[0].length - 1;
    const value = (column) => (data[0].length && data[column + 1][point] != null ? format(data[column + 1][point]) : '-');
    const text = series.map(({ label }, column) => `${label} ${value(column)}`).join(', ');
    return html`<figure class="chart">
      <figcaption><h3>${title}</h3>
        <ul class="legend">${series.map(({ label }, column) => html`<li key=${label}><svg viewBox="0 0 18 6" class="stroke" aria-hidden="true">
          <line class=${`series-${column + 1}`} x2="18" y1="3" y2="3" /></svg>${label} <strong class="number">${value(column)}</strong></li>`)}
        </ul>
        <span class="note number">${at === null && !isStatic ? 'now' : localTime(data[0][point]).slice(11)}</span>
      </figcaption>
      <div role="img" aria-label=${`${title}: ${text}`} ref=${(box) => { this.box = box; }}></div>
    </figure>`;
  }
}
