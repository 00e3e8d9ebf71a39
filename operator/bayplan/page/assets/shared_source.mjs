// Source of the documents for a page: one connection to the operator for all pages of a browser, which a shared worker holds.
// Browsers open at most six connections to a host, and a stream needs one all the time. Without shared workers, the page connects.

import { HttpSource, Refused } from './http_source.mjs';

const PING = 20000;

export class SharedSource {
  /** `base` is the address of the page, which ends with a slash. */
  constructor(base) {
    this.base = base;
    this.waiting = new Map();
    this.next = 0;
    this.visible = () => this.post({ kind: 'visible', isVisible: document.visibilityState === 'visible' });
    this.hide = () => this.leave();
    this.restored = (event) => event.persisted && this.join();
  }

  /** Read events until the returned function is called; see HttpSource. */
  stream(panels, onEvent, onState) {
    Object.assign(this, { panels, onEvent, onState });
    this.join();
    document.addEventListener('visibilitychange', this.visible);
    addEventListener('pagehide', this.hide);
    addEventListener('pageshow', this.restored);
    return () => {
      document.removeEventListener('visibilitychange', this.visible);
      removeEventListener('pagehide', this.hide);
      removeEventListener('pageshow', this.restored);
      this.leave();
    };
  }

  join() {
    try {
      const worker = new SharedWorker(new URL('./stream_worker.mjs', import.meta.url), { type: 'module', name: 'bayplan' });
      worker.onerror = () => this.connect();
      this.port = worker.port;
      this.port.onmessage = ({ data }) => this.received(data);
      this.post({ kind: 'join', panels: this.panels });
      this.visible();
      this.pinging = setInterval(() => this.post({ kind: 'ping' }), PING);
    } catch {
      this.connect();
    }
  }

  /** Connect without a worker. */
  connect() {
    this.port = null;
    clearInterval(this.pinging);
    this.direct = new HttpSource(this.base);
    this.post({ kind: 'visible', isVisible: document.visibilityState === 'visible' });
    this.end = this.direct.stream(this.panels, (name, data) => this.onEvent(name, data, performance.now()), this.onState);
  }

  leave() {
    clearInterval(this.pinging);
    this.end?.();
    this.direct = null;
    this.post({ kind: 'leave' });
    this.port?.close();
    this.port = null;
    for (const { reject } of this.waiting.values()) reject(new TypeError('the page was left'));
    this.waiting.clear();
  }

  post(message) {
    if (this.direct && message.kind === 'visible') this.direct.show(message.isVisible);
    this.port?.postMessage(message);
  }

  received({ kind, ...message }) {
    if (kind === 'event') {
      this.onEvent(message.name, message.data, message.at - performance.timeOrigin);
    } else if (kind === 'state') {
      const { retryAt } = message.state;
      this.onState(retryAt ? { ...message.state, retryAt: retryAt - performance.timeOrigin } : message.state);
    } else if (kind === 'answer') {
      const { resolve, reject } = this.waiting.get(message.id) ?? {};
      this.waiting.delete(message.id);
      if (message.status) reject?.(new Refused(message.status, message.body));
      else if (message.isLost) reject?.(new TypeError('the operator cannot be reached'));
      else resolve?.(message.document);
    }
  }

  /** Return one document; see HttpSource. */
  read(path, manifest = '') {
    if (this.direct) return this.direct.read(path, manifest);
    this.next += 1;
    const id = this.next;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.post({ kind: 'read', id, path, manifest });
    });
  }

  /** Use a bearer token in all pages of this browser, and connect. */
  login(token) {
    this.direct?.login(token);
    this.post({ kind: 'login', token });
  }

  /** Connect now instead of at the end of the wait. */
  retry() {
    this.direct?.retry();
    this.post({ kind: 'retry' });
  }
}
