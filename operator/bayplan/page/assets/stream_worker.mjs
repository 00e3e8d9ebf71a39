// Shared worker: holds the connection to the operator for all pages of a browser, and the newest documents for pages that join.
//
//     page ──join──▶ worker ──first page──▶ stream of the operator ──event──▶ every page
//     page ──leave, or silent──▶ worker ──last page──▶ the stream is closed

import { applyDelta } from './document_delta.mjs';
import { HttpSource } from './http_source.mjs';

// Timers of pages in the background run once a minute.
const SILENT = 180000;

const source = new HttpSource(new URL('..', self.location));
const pages = new Map();
let documents = new Map();
let state = null;
let end = null;

const now = () => performance.timeOrigin + performance.now();

function send(message) {
  for (const port of pages.keys()) port.postMessage(message);
}

function onState(next) {
  state = next.retryAt ? { ...next, retryAt: performance.timeOrigin + next.retryAt } : next;
  // After a new connection the operator sends every document again.
  if (next.kind === 'connecting') documents = new Map();
  send({ kind: 'state', state });
}

function onEvent(name, data) {
  const event = { kind: 'event', name, data, at: now() };
  if (name === 'nodesDelta') {
    const changed = applyDelta(documents.get('nodes')?.data, data);
    if (changed) documents.set('nodes', { ...event, name: 'nodes', data: changed });
    else documents.delete('nodes');
  } else if (name === 'failure') {
    documents.set(`${data.panel} failure`, event);
  } else {
    documents.set(name, event);
    documents.delete(`${name} failure`);
  }
  send(event);
}

async function read(port, { id, path, manifest }) {
  const answer = { kind: 'answer', id };
  try {
    answer.document = await source.read(path, manifest);
  } catch (error) {
    if (error.status) Object.assign(answer, { status: error.status, body: { ...error.body, error: error.message } });
    else answer.isLost = true;
  }
  port.postMessage(answer);
}

function show() {
  source.show([...pages.values()].some(({ isVisible }) => isVisible));
}

function leave(port) {
  if (!pages.delete(port)) return;
  if (pages.size) {
    show();
  } else {
    end?.();
    end = null;
    state = null;
    documents = new Map();
  }
}

const HANDLERS = {
  join(port, { panels }) {
    pages.set(port, { isVisible: true, seen: now() });
    if (state) port.postMessage({ kind: 'state', state });
    for (const event of documents.values()) port.postMessage(event);
    end ??= source.stream(panels, onEvent, onState);
  },
  leave,
  visible(port, { isVisible }) {
    const page = pages.get(port);
    if (page) page.isVisible = isVisible;
    show();
  },
  ping() {},
  read,
  login(_, { token }) { source.login(token); },
  retry() { source.retry(); },
};

self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    const page = pages.get(port);
    if (page) page.seen = now();
    HANDLERS[data.kind]?.(port, data);
  };
  port.onclose = () => leave(port);
};

setInterval(() => {
  for (const [port, { seen }] of pages) if (now() - seen > SILENT) leave(port);
}, SILENT / 3);
