// Entry of a report: a file that contains the documents of some panels, and needs no server.

import { mount } from './app.mjs';
import { Gangs } from './panels/gangs.mjs';
import { Nodes } from './panels/nodes.mjs';
import { Overview } from './panels/overview.mjs';
import { Pending } from './panels/pending.mjs';
import { Work } from './panels/work.mjs';
import { parseRoute, routeTo } from './routing.mjs';

const PANELS = { overview: Overview, pending: Pending, work: Work, gangs: Gangs, nodes: Nodes };

/** Source of a file. `work` has the explained pods and gangs. */
class ReportSource {
  constructor({ title, documents, work }) {
    this.title = title;
    this.documents = documents;
    this.work = work;
    this.isStatic = true;
  }

  stream(panels, onEvent, onState) {
    onState({ kind: 'static' });
    for (const name of panels) onEvent(name, this.documents[name]);
    return () => {};
  }

  async read(path) {
    const asked = new URLSearchParams(path.slice(path.indexOf('?')));
    const kind = asked.has('podgroup') ? 'gang' : 'pod';
    const [namespace, name, api] = [asked.get('namespace'), asked.get(kind === 'gang' ? 'podgroup' : 'pod'), asked.get('api')];
    const found = this.work.find(({ document, ...each }) => document.kind === kind && each.namespace === namespace && each.name === name
      && (!api || document.explanation.api === api));
    if (!found) throw Object.assign(new Error('this report does not contain its explanation; use bayplan explain'), { status: 404 });
    return found.document;
  }

  /** Panels whose documents the file contains. */
  panels() {
    const names = [...Object.keys(this.documents), ...(this.work.length ? ['work'] : [])];
    return Object.fromEntries(names.map((name) => [name, PANELS[name]]));
  }
}

const source = new ReportSource(JSON.parse(document.getElementById('documents').textContent));
if (!parseRoute(location.hash).panel && !source.documents.pending) {
  // A report of one pod or gang shows it at once.
  const [{ namespace, name, document: { kind } }] = source.work;
  history.replaceState(null, '', routeTo('work', [kind, namespace, name]));
}
mount(document.getElementById('page'), source, source.panels());
