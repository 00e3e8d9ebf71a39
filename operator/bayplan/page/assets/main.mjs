// Entry of the served page.

import { mount } from './app.mjs';
import { Gangs } from './panels/gangs.mjs';
import { Nodes } from './panels/nodes.mjs';
import { Overview } from './panels/overview.mjs';
import { Pending } from './panels/pending.mjs';
import { Plans } from './panels/plans.mjs';
import { Profiles } from './panels/profiles.mjs';
import { Rates } from './panels/rates.mjs';
import { Reservations } from './panels/reservations.mjs';
import { Watches } from './panels/watches.mjs';
import { Work } from './panels/work.mjs';
import { SharedSource } from './shared_source.mjs';

const panels = { overview: Overview, pending: Pending, work: Work, gangs: Gangs, reservations: Reservations, nodes: Nodes, profiles: Profiles, plans: Plans, rates: Rates, watches: Watches };

mount(document.getElementById('page'), new SharedSource(new URL('.', document.baseURI)), panels);
