// Commands that the page shows, with the address at which this page reaches the operator.

const DEFAULT_PORT = '10259';
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/;
const PROXIED = /^(\/.*\/proxy)\/page\//;
// Commands that send a request to the operator, of which they find out the scheme. The others read the cluster or files.
const OPERATOR_COMMAND = /^bayplan (status|explain|record)\b(?!.* --server )/;

/** Return a command that reaches the same operator as the page: behind the API server's proxy it finds the operator by itself. */
export function reachable(command, { protocol, hostname, port, pathname } = location) {
  if (!OPERATOR_COMMAND.test(command) || !LOOPBACK.test(hostname) || PROXIED.test(pathname) || port === DEFAULT_PORT) return command;
  const host = hostname === 'localhost' ? '127.0.0.1' : hostname;
  return `${command} --server ${host}:${port || (protocol === 'https:' ? '443' : '80')}`;
}

/** Return the command that prints the metrics of the operator, "" if the page was opened from a file. */
export function metricsCommand({ origin, protocol, pathname } = location) {
  if (!protocol.startsWith('http')) return '';
  const [, proxy] = PROXIED.exec(pathname) ?? [];
  if (proxy) return `kubectl get --raw ${proxy}/metrics`;
  return `curl -s ${protocol === 'https:' ? '-k ' : ''}${origin}/metrics`;
}
