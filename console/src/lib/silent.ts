import type { Client } from './types';

/** What is wrong with a client that reports no load, and what to do: as the server says it of all of them together. */
export function silence(c: Client): string {
  const subscribed = (c.types['eds'] as { names?: string[] } | undefined)?.names ?? []; // missing where they are many
  const few = 3;
  const names = subscribed.length > few ? `${subscribed.slice(0, few).join(', ')} and ${subscribed.length - few} more` : subscribed.join(', ');
  return `${names ? `subscribes to ${names}: ` : ''}the plan does not include its load; give it a load report stream`;
}
