import { expect, test } from 'vitest';
import { drainedWhole, drainsOf } from './drains';
import type { Service } from './types';

test('tells a locality that is drained from one of which some endpoints are', () => {
  const override = (address: string, locality: string, status = 'draining') => ({ address, locality, status });
  const service = {
    localities: [{ locality: 'eu/a', endpoints: 2 }, { locality: 'eu/b', endpoints: 2 }, { locality: 'us/a', endpoints: 1 }],
    health_overrides: [override('1', 'eu/a'), override('2', 'eu/a'), override('3', 'eu/b'), override('4', 'us/a', 'unhealthy')],
  } as unknown as Service;
  expect([...drainsOf(service)]).toEqual([['eu/a', 2], ['eu/b', 1]]);
  expect([...drainedWhole(service)]).toEqual(['eu/a']);
  expect(drainedWhole(undefined).size).toBe(0);
});
