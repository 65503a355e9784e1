import type { Client } from './types';

/** The states of a client, the worst first. */
export const states = [
  { id: 'refuses', words: 'refuses' },
  { id: 'behind', words: 'behind' },
  { id: 'missing', words: 'asks for what does not exist' },
  { id: 'silent', words: 'reports no load' },
  { id: 'ok', words: 'in sync' },
] as const;

/** The worst that is wrong with a client. */
export function trouble(c: Client): (typeof states)[number]['id'] {
  if (Object.values(c.types).some((t) => (t.rejected ?? 0) > 0)) return 'refuses';
  if (!c.in_sync) return 'behind';
  if ((c.missing?.length ?? 0) > 0) return 'missing';
  return c.lrs ? 'ok' : 'silent';
}
