import { expect, test } from 'vitest';
import { silence } from './silent';
import type { Client } from './types';

test.each([
  [['checkout'], 'subscribes to checkout: what it sends is not planned for; give it a load report stream'],
  [['a', 'b', 'c', 'd', 'e'], 'subscribes to a, b, c and 2 more: what it sends is not planned for; give it a load report stream'],
  [undefined, 'what it sends is not planned for; give it a load report stream'],
])('a silent client of %j', (names, want) => expect(silence({ types: { eds: { names } } } as unknown as Client)).toBe(want));
