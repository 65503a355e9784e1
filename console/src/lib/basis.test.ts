import { expect, test } from 'vitest';
import { bases, sign, signs } from './basis';
import type { CapacityBasis } from './types';

test('capacities that nobody declared have a sign, and the legend those that are there', () => {
  const at = (capacity_basis?: CapacityBasis) => (capacity_basis === undefined ? {} : { capacity_basis });
  expect([at('declared'), at('estimated'), at('assumed'), at(''), at()].map(sign)).toEqual(['', '~', '?', '', '']);
  expect(signs([at('declared'), at()])).toEqual([]);
  expect(signs([at('assumed'), at('declared'), at('assumed')])).toEqual([bases.assumed]);
  expect(signs([at('assumed'), at('estimated')])).toEqual([bases.estimated, bases.assumed]);
});
