// Panel of rates and latencies against their objectives.

import { metricsCommand } from '../commands.mjs';
import { Chip, html, Panel, Pure, Table } from '../elements.mjs';
import { count, counted, decimal, latency } from '../text.mjs';
import { Chart } from './chart.mjs';

const perSecond = (value) => `${decimal(value, 1)} /s`;
const CHARTS = [
  { title: 'Pods per second', format: perSecond, series: [{ label: 'bound', column: 1 }, { label: 'attempts', column: 2 }] },
  { title: 'Pods that wait', format: count, series: [{ label: 'waiting', column: 3 }] },
  { title: 'Latency, 99th percentile', format: latency, isLog: true, series: [{ label: 'queue to bound', column: 5 }, { label: 'attempt', column: 4 }] },
];

export class Rates extends Pure {
  render({ doc, theme, isStatic, failure }) {
    const columns = doc && CHARTS.flatMap(({ series }) => series).map(({ column }) => column);
    const note = doc && `one point per ${doc.intervalSeconds} s, the last ${counted(Math.ceil((doc.points.length * doc.intervalSeconds) / 60), 'minute')}`;
    const data = doc && [0, ...columns].reduce((all, column) => ({ ...all, [column]: doc.points.map((point) => column > 3 ? point[column] || null : point[column]) }), {});
    return html`<${Panel} id="rates" failure=${failure} title="Rates and latencies" note=${note ?? ''} busy=${!doc} commands=${doc && [...doc.commands, metricsCommand()].filter(Boolean)}>
      ${doc && html`<div class="charts">${CHARTS.map((chart) => html`<${Chart} key=${chart.title} title=${chart.title} series=${chart.series}
          format=${chart.format} isLog=${chart.isLog} data=${[data[0], ...chart.series.map(({ column }) => data[column])]} theme=${theme} isStatic=${isStatic} />`)}</div>
        <div class="columns">
          <${Objectives} objectives=${doc.objectives} />
          <div><h3>Counters</h3><dl class="figures">
            <div><dt>lost binds</dt><dd class="number">${count(doc.lostBinds)}</dd></div>
            <div><dt>conflicts</dt><dd class="number">${count(doc.conflicts)}</dd></div>
          </dl></div>
        </div>`}
    <//>`;
  }
}

function Objectives({ objectives }) {
  const columns = [{ title: 'Objective' }, { title: 'Stated' }, { title: 'Measured', right: true }, { title: 'Met' }];
  const met = (value) => (value === null ? ['quiet', 'no data'] : value ? ['good', 'met'] : ['bad', 'not met']);
  return html`<div><h3>Objectives</h3><${Table} label="Objectives" columns=${columns} rows=${objectives.map((each) => ({
    key: each.name,
    cells: [each.name, each.objective, typeof each.value === 'number' ? latency(each.value) : each.value ?? '-', html`<${Chip} tone=${met(each.met)[0]}>${met(each.met)[1]}<//>`],
  }))} /></div>`;
}
