import type { Client } from './types';

/** The states of a client, the worst first. */
export const states = [
  { id: 'refuses', words: 'refuses' },
  { id: 'behind', words: 'behind' },
  { id: 'missing', words: 'asks for what does not exist' },
  { id: 'deviates', words: 'does not follow its weights' },
  { id: 'silent', words: 'reports no load' },
  { id: 'ok', words: 'in sync' },
] as const;

/** How much of its requests goes elsewhere, if one share differs by so many percent. */
export function elsewhere(points: number): string {
  return points >= 99.5 ? 'all of its requests go' : `at least ${points.toFixed(0)}% of its requests go`;
}

export type State = (typeof states)[number]['id'];

/** All that is wrong with a client, the worst first; 'ok' alone where nothing is. */
export function troubles(c: Client): State[] {
  const out: State[] = [];
  if (Object.values(c.types).some((t) => (t.rejected ?? 0) > 0)) out.push('refuses');
  else if (!c.in_sync) out.push('behind');
  if ((c.missing?.length ?? 0) > 0) out.push('missing');
  if ((c.deviates?.length ?? 0) > 0) out.push('deviates');
  if (!c.lrs) out.push('silent');
  return out.length > 0 ? out : ['ok'];
}

/** The worst that is wrong with a client. */
export function trouble(c: Client): State {
  return troubles(c)[0]!;
}
