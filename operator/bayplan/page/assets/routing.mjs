// Permalinks: the fragment of the address names a panel and what it shows. Nothing of it is sent to the server.

export const PANELS = ['pending', 'work', 'gangs', 'reservations', 'nodes', 'profiles', 'plans', 'rates', 'watches'];

/** Return {panel, path, query} of a fragment such as #/work/pod/ns/name?x=y; panel is "" for an unknown one. */
export function parseRoute(fragment) {
  const [path, query = ''] = fragment.replace(/^#\/?/, '').split(/\?(.*)/s);
  const parts = path.split('/').map(decoded);
  const known = PANELS.includes(parts[0]);
  return { panel: known ? parts[0] : '', path: known ? parts.slice(1) : [], query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Return the fragment of a panel. Empty values of the query are left out. */
export function routeTo(panel, path = [], query = {}) {
  const found = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== '' && value != null));
  const text = found.toString();
  return `#/${[panel, ...path].map(encodeURIComponent).join('/')}${text ? `?${text}` : ''}`;
}

/** Return the fragment of a pod that is named "namespace/name", on a side of a comparison. */
export function podLink(name, side = '') {
  return routeTo('work', ['pod', ...split(name)], { side });
}

/** Return the fragment of a gang that is named "namespace/name"; `api` is the API group of its PodGroup. */
export function gangLink(name, api = '', side = '') {
  return routeTo('work', ['gang', ...split(name)], { api, side });
}

function split(name) {
  const at = name.indexOf('/');
  return at < 0 ? ['', name] : [name.slice(0, at), name.slice(at + 1)];
}
