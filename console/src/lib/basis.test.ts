import { expect, test } from 'vitest';
import { bases, sign, signs } from './basis';
import type { Site } from './types';

test('capacities that nobody declared have a sign, and the legend those that are there', () => {
  const at = (capacity_basis?: Site['capacity_basis']): Site => ({
    locality: 'us/a', endpoints: 1, healthy: 1, capacity: 10, ceiling: 0.8, load: 0, unmanaged_load: 0, utilization: 0, price_ms: 0, ...(capacity_basis === undefined ? {} : { capacity_basis }),
  });
  expect([at('declared'), at('estimated'), at('assumed'), at(''), at()].map(sign)).toEqual(['', '~', '?', '', '']);
  expect(signs([at('declared'), at()])).toEqual([]);
  expect(signs([at('assumed'), at('declared'), at('assumed')])).toEqual([bases.assumed]);
  expect(signs([at('assumed'), at('estimated')])).toEqual([bases.estimated, bases.assumed]);
});
