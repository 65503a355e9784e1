import { count } from './format';

interface Counts {
  healthy: number; // those that take traffic
  draining?: number;
  endpoints: number;
}

/** How many endpoints take traffic, and why the others do not: a drain is no failure. */
export interface Healthy {
  bad: boolean; // some fail, or are voted down
  drained: boolean; // all others are drained
  title: string; // '' where all take traffic
}

/** held tells that more are voted down than are counted, and kept in traffic. */
export function healthy(of: Counts[], held = false): Healthy {
  const sum = (key: keyof Counts): number => of.reduce((n, x) => n + (x[key] ?? 0), 0);
  const draining = sum('draining');
  const failing = sum('endpoints') - sum('healthy') - draining;
  const parts: string[] = [];
  if (failing > 0) parts.push(`${count(failing, 'endpoint')} ${failing === 1 ? 'is' : 'are'} not healthy`);
  if (held) parts.push('checkers vote more endpoints down than that, and their verdicts are held');
  if (draining > 0) parts.push(`${count(draining, 'endpoint')} ${draining === 1 ? 'is' : 'are'} drained, which is no failure`);
  const title = parts.join('; ');
  return { bad: failing > 0 || held, drained: failing <= 0 && !held && draining > 0, title: title.charAt(0).toUpperCase() + title.slice(1) };
}
