import { clock, pair, percent, rate } from './format';
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

/** The newest value, if it is one of the last three: an older one is of what no longer is. */
export function newest(values: (number | null)[]): number | null {
  return values.slice(-3).findLast((v) => v != null) ?? null;
}

/** A chart in words, for those who can't see it. */
export function words(title: string, lines: Line[], share: boolean, marks: { at: number; text: string }[] = []): string {
  const one = (l: Line): string => {
    const known = l.values.filter((x): x is number => x != null);
    if (known.length === 0) return `${l.name}: nothing known`;
    const show = share ? percent : rate;
    const now = newest(l.values);
    return `${l.name}: ${now === null ? 'nothing' : show(now)} now, ${show(Math.min(...known))} to ${show(Math.max(...known))}`;
  };
  const marked = marks.map((m) => `${clock(new Date(m.at * 1000).toISOString())} ${m.text}`);
  return `${title}. ${lines.map(one).join('; ')}${marked.length > 0 ? `. Marked: ${marked.join('; ')}` : ''}`;
}

/** Where the name of a mark stands: its left end, and its row from the top. */
export interface Label {
  left: number;
  row: number;
}

/** The rows that names of marks have at most. */
export const labelRows = 5;

/**
 * Places the names of marks beside their lines, on the left where the right side has no
 * space, each in the first row in which it covers no other name. undefined: no row is free.
 */
export function labels(marks: { line: number; width: number }[], end: number, margin: number): (Label | undefined)[] {
  const taken: { left: number; right: number }[][] = Array.from({ length: labelRows }, () => []);
  return marks.map(({ line, width }) => {
    const left = line + margin + width > end ? line - margin - width : line + margin;
    const row = taken.findIndex((row) => row.every((t) => left > t.right + margin || left + width < t.left - margin));
    if (row < 0) return undefined;
    taken[row]!.push({ left, right: left + width });
    return { left, row };
  });
}

export interface Move {
  source: string;
  locality: string;
  before: number | null; // null: the source was not there
  after: number | null; // null: it is gone
}

/** Whether a share before and after reads alike: a row of the same figure twice is no change. */
function alike(before: number | null, after: number | null): boolean {
  if (before === null || after === null) return false;
  const [a, b] = pair(before, after);
  return a === b;
}

/** What a change moved of a service so far that figures show it, the largest moves first. */
export function moves(c: Change['services'][number]): Move[] {
  const out: Move[] = [];
  for (const s of c.sources) {
    c.localities.forEach((locality, i) => {
      const before = s.before ? (s.before[i] ?? 0) / 10_000 : null;
      const after = s.after ? (s.after[i] ?? 0) / 10_000 : null;
      if (!alike(before, after) && (before || after)) out.push({ source: s.source, locality, before, after });
    });
  }
  const size = (m: Move): number => Math.round(10_000 * Math.abs((m.after ?? 0) - (m.before ?? 0)));
  return out.sort((a, b) => size(b) - size(a));
}

/** Words for what set off a change. */
export const triggers: Record<string, string> = {
  tick: 'a regular adjustment',
  health: 'health of endpoints changed',
  topology: 'the configuration changed',
  operator: 'an operator',
  restart: 'the server started',
};
