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

/** A fraction as percent, with a tenth where the bound that stands beside it would look the same without. */
export function percentBeside(x: number, bound: number): string {
  const same = percent(x) === percent(bound) && Math.abs(x - bound) >= 0.0005;
  return same ? `${(100 * x).toFixed(1)}%` : percent(x);
}

/**
 * The parts of one whole as percent, rounded so that they add up to what the whole is: what is
 * cut off goes to the largest remainders. All of them have tenths where one is below 10%. The
 * sentences of the server round by the same rule.
 */
export function portions(shares: Iterable<readonly [string, number]>): Map<string, string> {
  const all = [...shares].map(([name, share]) => ({ name, share, units: Math.round(10_000 * share) })); // as weights have them
  const step = all.some((x) => x.units > 0 && x.units < 1000) ? 10 : 100;
  const cut = all.map((x) => ({ ...x, whole: Math.floor(x.units / step), rest: x.units % step }));
  let left = Math.floor(all.reduce((sum, x) => sum + x.units, 0) / step + 0.5) - cut.reduce((sum, x) => sum + x.whole, 0);
  for (const x of [...cut].sort((a, b) => b.rest - a.rest || b.units - a.units || (a.name < b.name ? -1 : 1))) {
    if (left <= 0 || x.rest === 0) break;
    x.whole++;
    left--;
  }
  const text = (x: (typeof cut)[number]): string => {
    if (!Number.isFinite(x.share)) return '–';
    if (x.whole === 0 && x.share > 0) return '< 0.1%';
    return `${((x.whole * step) / 100).toFixed(step === 10 ? 1 : 0).replace(/\.0$/, '')}%`;
  };
  return new Map(cut.map((x) => [x.name, text(x)]));
}

/** Two fractions as percent, with a digit more where they would read alike but are not. */
export function pair(before: number, after: number): [string, string] {
  const [a, b] = [percent(before), percent(after)];
  if (a !== b || before === after) return [a, b];
  const tenths = (x: number): string => `${(100 * x).toFixed(1)}%`;
  return tenths(before) === tenths(after) ? [a, b] : [tenths(before), tenths(after)];
}

/** A text of the server with its percentages as percent writes them, unless two of them would read alike. */
export function rounded(text: string): string {
  const exact = /(?<![\w.])\d+\.\d%/g;
  const found = new Set(text.match(exact));
  const short = (x: string): string => percent(Number(x.slice(0, -1)) / 100);
  return new Set([...found].map(short)).size === found.size ? text.replace(exact, short) : text;
}

/** An upper bound of a fraction, in words. */
export function atMost(x: number): string {
  const text = percent(x);
  return text.startsWith('< ') ? `less than ${text.slice(2)}` : `at most ${text}`;
}

/** An upper bound of what moved, in words. */
export function upTo(x: number): string {
  return atMost(x).replace(/^at most /, 'up to ');
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
