// Source of a report: a file that contains the documents of some panels, and needs no server.

import { mount } from './app.mjs';
import { Gangs } from './panels/gangs.mjs';
import { Nodes } from './panels/nodes.mjs';
import { Overview } from './panels/overview.mjs';
import { Pending } from './panels/pending.mjs';
import { Plans } from './panels/plans.mjs';
import { Profiles } from './panels/profiles.mjs';
import { Reservations } from './panels/reservations.mjs';
import { Watches } from './panels/watches.mjs';
import { Work } from './panels/work.mjs';
import { parseRoute, routeTo } from './routing.mjs';

/** Panels of all reports by name. */
export const PANELS = { overview: Overview, pending: Pending, work: Work, gangs: Gangs, reservations: Reservations, nodes: Nodes, profiles: Profiles, plans: Plans, watches: Watches };

/**
 * `facts` are [name, value] pairs about the report, and `summary` sentences with its result.
 * `work` has the explained pods and gangs; `taken` is the time of the documents, "" for virtual time.
 * `sides` are the compared profiles as {id, label}; the documents of panels are then by the id of the side.
 */
class ReportSource {
  constructor({ title, facts, summary, taken, documents, work, sides }) {
    this.title = title;
    this.taken = taken;
    this.facts = facts;
    this.summary = summary;
    this.documents = documents;
    this.work = work;
    this.isStatic = true;
    this.sides = Object.entries(sides).map(([id, name]) => ({ id, label: `${id}: ${name}` }));
  }

  stream(panels, onEvent, onState) {
    onState({ kind: 'static', taken: this.taken });
    for (const name of panels) onEvent(name, this.documents[name]);
    return () => {};
  }

  async read(path) {
    const params = new URLSearchParams(path.slice(path.indexOf('?')));
    const side = params.get('side');
    const kind = params.has('podgroup') ? 'gang' : 'pod';
    const [namespace, name, api] = [params.get('namespace'), params.get(kind === 'gang' ? 'podgroup' : 'pod'), params.get('api')];
    const found = this.work.find(({ document, ...each }) => document.kind === kind && each.namespace === namespace && each.name === name
      && (!api || document.explanation.api === api) && (!side || each.side === side));
    if (!found) throw Object.assign(new Error('this report does not contain its explanation; use bayplan explain'), { status: 404 });
    return found.document;
  }
}

/** Return the source of this file. */
export function readReport() {
  return new ReportSource(JSON.parse(document.getElementById('documents').textContent));
}

/** Show the panels whose documents the file contains; `panels` are components by name. */
export function showReport(source, panels) {
  const names = [...Object.keys(source.documents), ...(source.work.length ? ['work'] : [])];
  if (!parseRoute(location.hash).panel && !source.documents.pending) {
    // A report of one pod or gang shows it at once.
    const [{ namespace, name, document: { kind } }] = source.work;
    history.replaceState(null, '', routeTo('work', [kind, namespace, name]));
  }
  mount(document.getElementById('page'), source, Object.fromEntries(names.map((name) => [name, panels[name]])));
}
