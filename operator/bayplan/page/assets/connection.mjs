// Banner for a connection that is not live, and the login by bearer token.

import { Component } from './vendor/preact-11.2.0.mjs';
import { Age, Command, Countdown, html, Name } from './elements.mjs';

const TITLES = {
  lost: 'Connection lost',
  forbidden: 'Access denied',
  standby: 'This replica is a standby',
  notReady: 'The operator is not ready',
  viewers: 'Too many viewers',
  paused: 'Paused',
};

/** Properties: connection, at (time of the last overview), onRetry. Nothing is shown while the connection is live. */
export function Banner({ connection, at, onRetry }) {
  const title = TITLES[connection.kind];
  if (!title) return null;
  const { text, retryAt, missing, kind } = connection;
  return html`<div class=${`banner ${kind}`} role="alert">
    <h2>${title}</h2>
    ${text && html`<p><bdi>${text}</bdi></p>`}
    ${kind === 'standby' && html`<${Leader} connection=${connection} />`}
    ${missing?.length > 0 && html`<ul class="list">${missing.map((each) => html`<li key=${each}><bdi>${each}</bdi></li>`)}</ul>`}
    <p class="note" aria-live="off">${at ? html`The panels show the state of <${Age} seconds=${0} at=${at} /> ago. ` : ''}
      ${retryAt ? html`Next attempt in <${Countdown} at=${retryAt} />. ` : ''}
      ${onRetry && html`<button type="button" class="small" onClick=${onRetry}>Connect now</button>`}</p>
  </div>`;
}

/** The leader, and how to reach its page: behind the API server's proxy a link, else the command of a port-forward. */
function Leader({ connection: { lease = '', holder = '', url, localPort } }) {
  if (!holder) return html`<p>No replica leads now${lease ? html` (lease <${Name}>${lease}<//>)` : ''}.</p>`;
  const pod = holder.split('_')[0];
  const namespace = lease.split('/')[0];
  const proxied = /^(.*\/namespaces\/[^/]+\/pods\/https?:)[^/:]+(:\d+\/proxy\/.*)$/.exec(location.pathname);
  const port = localPort || portOf(url);
  return html`<p>Leader: <${Name}>${holder}<//> (lease <${Name}>${lease}<//>${url ? html`, serves at <${Name}>${url}<//>` : ''}).</p>
    ${proxied
      ? html`<p><a href=${`${proxied[1]}${encodeURIComponent(pod)}${proxied[2]}`}>Open the page of the leader</a></p>`
      : html`<${Command} text=${`kubectl -n ${namespace} port-forward pod/${pod} ${location.port || port}:${port}`} />`}`;
}

function portOf(url) {
  try {
    return new URL(url).port || '443';
  } catch {
    return '10259';
  }
}

/** Properties: connection, onLogin(token). The token is stored in memory until the page is closed. */
export class Login extends Component {
  constructor(props) {
    super(props);
    this.submit = (event) => {
      event.preventDefault();
      const field = event.target.elements.namedItem('token');
      const token = field.value;
      field.value = '';
      if (token.trim()) this.props.onLogin(token);
    };
  }

  render({ connection }) {
    return html`<form class="login" onSubmit=${this.submit} aria-labelledby="login-title">
      <h2 id="login-title">Log in</h2>
      <p>The operator shows pods and nodes of all namespaces to accounts that may list them and get <code>/page/data</code>.</p>
      ${connection.isWrong && html`<p class="problem" role="alert">This token is not accepted.</p>`}
      ${connection.text && html`<p class="note"><bdi>${connection.text}</bdi></p>`}
      <label for="token">Bearer token</label>
      <input id="token" name="token" type="password" required autocomplete="off" spellcheck=${false} />
      <button type="submit">Log in</button>
      <p class="note">The token stays in the memory of this page. Create one with:</p>
      <${Command} text="kubectl -n NAMESPACE create token SERVICE_ACCOUNT" />
    </form>`;
  }
}
