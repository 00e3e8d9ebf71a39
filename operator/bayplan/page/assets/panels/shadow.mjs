// Results of a shadow profile: agreement with its live profile, packing if its choices were taken, last differences.

import { Chip, Cut, html, Meter, Name, Table } from '../elements.mjs';
import { podLink } from '../routing.mjs';
import { count, counted, localTime, percent } from '../text.mjs';

export function Shadow({ shadow }) {
  const { compared = 0, agreed = 0, carriedForward, differences = [] } = shadow;
  const share = compared ? agreed / compared : 0;
  const kinds = [['differed', shadow.differed], ['other node', shadow.otherNode], ['would reject', shadow.wouldReject], ['would schedule', shadow.wouldPlace]];
  return html`<div><h4>Shadow of <${Name}>${shadow.shadowOf}<//></h4>
    <p><${Meter} share=${share} label=${`agrees in ${percent(share, 1)}`} /> ${`agrees in ${compared ? percent(share, 1) : '-'} of ${counted(compared, 'compared decision')}`}</p>
    <p class="note">${kinds.filter(([, number]) => number != null).map(([what, number]) => `${what} ${count(number)}`).join(', ')}</p>
    ${shadow.lastError && html`<p class="problem"><${Chip} tone="bad">Last error<//> <bdi>${shadow.lastError}</bdi></p>`}</div>
    ${carriedForward && html`<${Carried} carried=${carriedForward} />`}
    ${differences.length > 0 && html`<${Differences} differences=${differences} />`}`;
}

function Carried({ carried: { pods, moved, live, shadow } }) {
  const figures = [['Pods with a node', 'placed'], ['Empty nodes', 'emptyNodes'], ['Skew between zones', 'zoneSkew']];
  const columns = [{ title: `Of ${counted(pods, 'pod')}, ${count(moved)} moved` }, { title: 'Live', right: true }, { title: 'Shadow', right: true }];
  return html`<${Table} label="The cluster as it is, and with the choices of the shadow" columns=${columns} rows=${figures
    .filter(([, name]) => live[name] != null)
    .map(([title, name]) => ({ key: name, cells: [title, count(live[name]), count(shadow[name])] }))} />`;
}

function Differences({ differences }) {
  const columns = [{ title: 'Pod' }, { title: 'Live' }, { title: 'Shadow' }, { title: 'Reason', wide: true }];
  const node = (name) => (name ? html`<${Name}>${name}<//>` : 'rejected');
  return html`<${Cut} entries=${differences} first=${3} what="differences">${(shown) => html`<${Table} label="Last differences, newest first"
    columns=${columns} rows=${shown.map((each) => ({
      key: `${each.time} ${each.pod}`,
      cells: [
        html`<a href=${podLink(each.pod)} title=${localTime(each.time)}><${Name}>${each.pod}<//></a>`,
        node(each.liveNode), node(each.shadowNode), html`<bdi>${each.reason}</bdi>`,
      ],
    }))} />`}<//>`;
}
