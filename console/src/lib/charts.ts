import { percent, rate } from './format';
import type { Change, Samples } from './types';

/** One line of a chart. */
export interface Line {
  name: string;
  values: (number | null)[];
}

/** The lines of a chart at most: more can't be told apart. */
export const most = 8;

/** The moments of samples, in seconds since 1970. */
export function times(s: Samples): number[] {
  const begin = Date.parse(s.begin) / 1000;
  return s.demand.map((_, i) => begin + i * s.step_seconds);
}

/** The utilization of the localities that are the fullest at any time, fullest first. */
export function fullest(s: Samples): Line[] {
  const peak = (values: (number | null)[]): number => values.reduce<number>((m, x) => Math.max(m, x ?? 0), 0);
  return s.localities
    .map((l) => ({ name: l.locality || 'no locality', values: l.utilization, peak: peak(l.utilization) }))
    .sort((a, b) => b.peak - a.peak || (a.name < b.name ? -1 : 1))
    .slice(0, most);
}

/** The newest value that is known, and the index at a moment otherwise. */
export function valueAt(values: (number | null)[], at: number): number | null {
  for (let i = Math.min(at, values.length - 1); i >= 0; i--) if (values[i] != null) return values[i]!;
  return null;
}

/** A chart in words, for those who can't see it. */
export function words(title: string, lines: Line[], share: boolean): string {
  const one = (l: Line): string => {
    const known = l.values.filter((x): x is number => x != null);
    if (known.length === 0) return `${l.name}: nothing known`;
    const show = share ? percent : rate;
    return `${l.name}: ${show(known[known.length - 1]!)} now, ${show(Math.min(...known))} to ${show(Math.max(...known))}`;
  };
  return `${title}. ${lines.map(one).join('; ')}`;
}

export interface Move {
  source: string;
  locality: string;
  before: number | null; // null: the source was not there
  after: number | null; // null: it is gone
}

/** What a change moved of a service, the largest moves first. */
export function moves(c: Change['services'][number]): Move[] {
  const out: Move[] = [];
  for (const s of c.sources) {
    c.localities.forEach((locality, i) => {
      const before = s.before ? (s.before[i] ?? 0) / 10_000 : null;
      const after = s.after ? (s.after[i] ?? 0) / 10_000 : null;
      if (before !== after && (before || after)) out.push({ source: s.source, locality, before, after });
    });
  }
  const size = (m: Move): number => Math.round(10_000 * Math.abs((m.after ?? 0) - (m.before ?? 0)));
  return out.sort((a, b) => size(b) - size(a));
}

/** Words for what set off a change. */
export const triggers: Record<string, string> = {
  tick: 'a regular decision',
  health: 'health of endpoints changed',
  topology: 'the configuration changed',
  operator: 'an operator',
  restart: 'the server started',
};
