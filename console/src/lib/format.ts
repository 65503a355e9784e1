// How numbers and times are written, alike on all screens.

/** A rate in requests/s, with three digits. */
export function rate(x: number): string {
  if (x >= 1e6) return `${digits(x / 1e6)}M`;
  if (x >= 1e4) return `${digits(x / 1e3)}k`;
  return digits(x);
}

export function digits(x: number): string {
  if (!Number.isFinite(x)) return '–';
  const size = Math.abs(x);
  if (size >= 100) return x.toFixed(0);
  if (size >= 10) return x.toFixed(1).replace(/\.0$/, '');
  return x.toFixed(2).replace(/\.?0+$/, '');
}

/** A fraction as percent: no digit after the point but below 10%. */
export function percent(x: number): string {
  if (!Number.isFinite(x)) return '–';
  const p = 100 * x;
  if (p !== 0 && Math.abs(p) < 0.1) return p < 0 ? '> -0.1%' : '< 0.1%';
  return `${Math.abs(p) < 10 ? p.toFixed(1).replace(/\.0$/, '') : p.toFixed(0)}%`;
}

/** An upper bound of a fraction, in words. */
export function atMost(x: number): string {
  const text = percent(x);
  return text.startsWith('< ') ? `less than ${text.slice(2)}` : `at most ${text}`;
}

export function ms(x: number): string {
  return `${digits(x)} ms`;
}

export function age(seconds: number): string {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** An estimate of latency, which may be below what the digits show. */
export function latency(x: number): string {
  return x < 0.01 ? '< 0.01 ms' : ms(x);
}

/** The time of day in the viewer's zone, of 24 hours whatever the browser's language. */
export function clock(at: string): string {
  const d = new Date(at);
  return [d.getHours(), d.getMinutes(), d.getSeconds()].map((x) => String(x).padStart(2, '0')).join(':');
}

/** The same moment in UTC. */
export function utc(at: string): string {
  return `${new Date(at).toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

/** A count with its noun, of which the plural ends in s. */
export function count(n: number, noun: string): string {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}
