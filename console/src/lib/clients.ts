import { percent } from './format';
import type { Client, Destination } from './types';

/** The states of a client, the worst first. */
export const states = [
  { id: 'refuses', words: 'refuses' },
  { id: 'behind', words: 'behind' },
  { id: 'missing', words: 'asks for what does not exist' },
  { id: 'deviates', words: 'does not follow its weights' },
  { id: 'silent', words: 'reports no load' },
  { id: 'ok', words: 'no problem' },
] as const;

/** How much of its requests goes elsewhere, if one share differs by so many percent. */
export function elsewhere(points: number): string {
  return points >= 99.5 ? 'all of its requests go' : `at least ${points.toFixed(0)}% of its requests go`;
}

/** Where most of its requests go, to be read behind that they go elsewhere; '' where that is not known. */
export function destination(d: Destination): string {
  return d.to_share ? `; it sends ${percent(d.to_share)} to ${d.to || 'no locality'}` : '';
}

export type State = (typeof states)[number]['id'];

/** All that is wrong with a client, the worst first; 'ok' alone where nothing is. */
export function troubles(c: Client): State[] {
  const out: State[] = [];
  if (Object.values(c.types).some((t) => (t.rejected ?? 0) > 0)) out.push('refuses');
  else if (!inSync(c)) out.push('behind');
  if ((c.missing?.length ?? 0) > 0) out.push('missing');
  if ((c.deviates?.length ?? 0) > 0) out.push('deviates');
  if (!c.lrs && !c.reports_to) out.push('silent');
  return out.length > 0 ? out : ['ok'];
}

/** Whether a client accepted all that it was sent, or was sent the rest less than 2 s ago, as the server counts it. It may have other problems. */
export function inSync(c: Client): boolean {
  const types = Object.values(c.types);
  if (types.some((t) => (t.rejected ?? 0) > 0)) return false;
  return c.in_sync || (types.length > 0 && types.every((t) => t.in_sync || (t.waiting === true && (t.waiting_seconds ?? 0) <= 2)));
}

/** The worst that is wrong with a client. */
export function trouble(c: Client): State {
  return troubles(c)[0]!;
}
