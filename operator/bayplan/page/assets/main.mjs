// Entry of the served page.

import { mount } from './app.mjs';
import { HttpSource } from './http_source.mjs';

mount(document.getElementById('page'), new HttpSource(new URL('.', document.baseURI)));
