// Source of the documents: the operator that serves the page. Reconnects with back-off; keeps the token in memory only. Runs in a
// page, or in a worker for all pages.

import { EventParser } from './event_stream.mjs';

const FIRST_WAIT = 1000;
const LONGEST_WAIT = 30000;
// The server sends a comment every 15 s.
const SILENCE = 40000;
// A page that is not visible frees its place for another viewer.
const HIDDEN = 300000;

/** Response other than 200. */
export class Refused extends Error {
  constructor(status, body) {
    super(body.error || `the operator answered with status ${status}`);
    this.status = status;
    this.body = body;
  }
}

/** Return the state that the page shows for a response that is no stream. */
function stateOf(refused) {
  const { status, body, message } = refused;
  if (status === 401) return { kind: 'login', text: message };
  if (status === 403) return { kind: 'forbidden', text: message };
  if (body.standby) return { kind: 'standby', text: message, lease: body.lease, holder: body.holder, url: body.url, localPort: body.localPort };
  if (body.notReady) return { kind: 'notReady', text: message, missing: body.notReady };
  if (body.viewers) return { kind: 'viewers', text: message, viewers: body.viewers };
  return { kind: 'lost', text: message };
}

export class HttpSource {
  /** `base` is the address of the page, which ends with a slash. */
  constructor(base) {
    this.base = base;
    this.token = '';
    this.attempt = 0;
  }

  /** Read `events` until the returned function is called. `onState` receives {kind, ...} at each change. */
  stream(panels, onEvent, onState) {
    this.panels = panels;
    this.onEvent = onEvent;
    this.onState = onState;
    this.isClosed = false;
    this.attempt = 0;
    this.connect();
    return () => {
      this.isClosed = true;
      clearTimeout(this.timer);
      clearTimeout(this.hiding);
      this.controller?.abort();
    };
  }

  /** Return one document; `manifest` is the body of a request for it. Throws Refused, or TypeError without a connection. */
  async read(path, manifest = '') {
    const response = await fetch(new URL(`data/${path}`, this.base), this.options(undefined, manifest));
    if (response.ok) return response.json();
    const refused = await this.refused(response);
    if (refused.status === 401) this.onState?.(stateOf(refused));
    throw refused;
  }

  /** Use a bearer token from now on, and connect. */
  login(token) {
    this.token = token.trim();
    this.retry();
  }

  /** Connect now instead of at the end of the wait. */
  retry() {
    clearTimeout(this.timer);
    this.controller?.abort();
    this.attempt = 0;
    this.connect();
  }

  options(signal, body = '') {
    const headers = body ? { 'Content-Type': 'application/yaml' } : {};
    // The API server's proxy strips Authorization, so the token is in both headers.
    if (this.token) {
      headers.Authorization = `Bearer ${this.token}`;
      headers['X-Bayplan-Token'] = this.token;
    }
    const sent = body ? { method: 'POST', body } : {};
    return { ...sent, headers, signal, credentials: 'same-origin', cache: 'no-store', redirect: 'error' };
  }

  async refused(response) {
    let body = {};
    try {
      body = await response.json();
    } catch {
      // A proxy between here and the operator answers in its own words.
    }
    return new Refused(response.status, body && typeof body === 'object' ? body : {});
  }

  async connect() {
    const controller = new AbortController();
    this.controller = controller;
    this.onState({ kind: 'connecting', attempt: this.attempt });
    let state = { kind: 'lost', text: 'the operator closed the connection' };
    try {
      const url = new URL('events', this.base);
      url.searchParams.set('panels', this.panels.join(','));
      this.watch(controller);
      const response = await fetch(url, this.options(controller.signal));
      if (!response.ok) throw await this.refused(response);
      this.onState({ kind: 'live' });
      await this.follow(response.body, controller);
    } catch (error) {
      if (error instanceof Refused) state = stateOf(error);
      else if (controller.signal.reason === 'silent') state.text = 'the operator is silent';
      else if (error instanceof TypeError) state.text = 'the operator cannot be reached';
      else if (error.name !== 'AbortError') state.text = String(error.message ?? error);
    }
    if (this.isClosed || this.controller !== controller) return;
    clearTimeout(this.silence);
    if (controller.signal.reason === 'hidden') {
      this.onState({ kind: 'paused' });
      return;
    }
    this.wait(state);
  }

  async follow(body, controller) {
    const parser = new EventParser((name, data) => {
      this.attempt = 0;
      if (this.controller === controller) this.onEvent(name, data);
    });
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      this.watch(controller);
      const { done, value } = await reader.read();
      if (done) return;
      parser.push(value);
    }
  }

  watch(controller) {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => controller.abort('silent'), SILENCE);
  }

  /** Wait 1 s, 2 s, 4 s, ... 30 s, each shortened by up to a half at random. A login waits for the reader. */
  wait(state) {
    if (state.kind === 'login') {
      this.onState({ ...state, isWrong: Boolean(this.token) });
      this.token = '';
      return;
    }
    const longest = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** this.attempt);
    const milliseconds = longest * (1 - Math.random() / 2);
    this.attempt += 1;
    this.onState({ ...state, attempt: this.attempt, retryAt: performance.now() + milliseconds });
    this.timer = setTimeout(() => this.connect(), milliseconds);
  }

  /** Note whether a reader sees the documents; after five minutes in which none does, reading stops until one does. */
  show(isVisible) {
    clearTimeout(this.hiding);
    if (!isVisible) {
      this.hiding = setTimeout(() => {
        clearTimeout(this.timer);
        this.controller?.abort('hidden');
      }, HIDDEN);
    } else if (this.controller?.signal.reason === 'hidden') {
      this.retry();
    }
  }
}
