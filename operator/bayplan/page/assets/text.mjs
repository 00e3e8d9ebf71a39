// Text of the page: escapes control characters, and formats durations, numbers and shares.

// The same characters as in bayplan/texts/document_formats.py. With the flag u, surrogates match only if they are alone.
const UNFIT = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]/gu;

/** Return the text with every control and bidirectional character escaped; line feeds and tabs stay. */
export function printable(text) {
  return text.replace(UNFIT, (found) => {
    const number = found.charCodeAt(0);
    return number < 0x100 ? `\\x${number.toString(16).padStart(2, '0')}` : `\\u${number.toString(16).padStart(4, '0')}`;
  });
}

/** Return a duration in at most two units, as kubectl does: 8s, 2m10s, 3h5m, 4d. */
export function duration(seconds) {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds)) return '-';
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 120) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 10) return whole % 60 ? `${minutes}m${whole % 60}s` : `${minutes}m`;
  if (minutes < 180) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 8) return minutes % 60 ? `${hours}h${minutes % 60}m` : `${hours}h`;
  if (hours < 48) return `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

const GROUPED = new Intl.NumberFormat('en-US');

/** Return an integer with thousands separators; a missing value is a dash. */
export function count(number) {
  return typeof number === 'number' && Number.isFinite(number) ? GROUPED.format(number) : '-';
}

/** Return "1 pod", "2 pods". */
export function counted(number, singular, plural = `${singular}s`) {
  return `${count(number)} ${number === 1 ? singular : plural}`;
}

/** Return a number with at most `digits` decimals and no trailing zeros. */
export function decimal(number, digits = 2) {
  if (typeof number !== 'number' || !Number.isFinite(number)) return '-';
  return new Intl.NumberFormat('en-US', { maximumFractionDigits: digits }).format(number);
}

/** Return a duration below some seconds with the precision that a latency needs: 340 µs, 12 ms, 1.25 s. */
export function latency(seconds) {
  if (typeof seconds !== 'number' || !Number.isFinite(seconds)) return '-';
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return `${decimal(seconds * 1e6, 0)} µs`;
  if (seconds < 1) return `${decimal(seconds * 1e3, seconds < 0.01 ? 1 : 0)} ms`;
  return `${decimal(seconds, 2)} s`;
}

/** Return a share of 0 to 1 as percent. */
export function percent(share, digits = 0) {
  return typeof share === 'number' && Number.isFinite(share) ? `${decimal(share * 100, digits)} %` : '-';
}

const BINARY = [['Gi', 2 ** 30], ['Mi', 2 ** 20], ['Ki', 2 ** 10]];

/** Return an amount of bytes in Gi, Mi or Ki with one decimal, as all commands do: 512Mi, 1.5Gi. */
export function bytes(amount) {
  const [unit, size] = BINARY.find((each) => Math.abs(amount) >= each[1]) ?? ['', 1];
  return `${decimal(amount / size, 1)}${unit}`;
}

/** Return the amount of a resource; cpu is in millicores, all other resources are in whole units. */
export function amountOf(resource, value) {
  if (resource === 'cpu') return `${decimal(value / 1000, 3)} cores`;
  if (resource === 'memory' || resource === 'ephemeral-storage' || resource.startsWith('hugepages-')) return bytes(value);
  return count(value);
}

/** Return the local time of an RFC 3339 time or of seconds since 1970, as 2026-11-23 13:02:12. */
export function localTime(time) {
  const date = new Date(typeof time === 'number' ? time * 1000 : time);
  if (Number.isNaN(date.getTime())) return typeof time === 'string' ? time : '-';
  const two = (number) => String(number).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
