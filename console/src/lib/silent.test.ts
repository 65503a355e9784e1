import { expect, test } from 'vitest';
import { silence } from './silent';
import type { Client } from './types';

test.each([
  [['checkout'], 'subscribes to checkout: the plan does not include its load; give it a load report stream'],
  [['a', 'b', 'c', 'd', 'e'], 'subscribes to a, b, c and 2 more: the plan does not include its load; give it a load report stream'],
  [undefined, 'the plan does not include its load; give it a load report stream'],
])('a silent client of %j', (names, want) => expect(silence({ types: { eds: { names } } } as unknown as Client)).toBe(want));
