import { expect, test } from 'vitest';
import type { LocalityWhy } from './types';
import { rule } from './why';

const at = (locality: string, target_share: number, cost_ms: number): LocalityWhy => ({ locality, target_share, cost_ms }) as LocalityWhy;

test('a share has its rule and the costs beside it', () => {
  expect(rule([])).toMatch(/lowest cost, which is network latency plus price/);
  expect(rule([at('us/a', 1, 3), at('us/b', 0, 9)])).toMatch(/us\/a has the lowest, 3 ms\.$/);
  expect(rule([at('us/a', 0.63, 41.2), at('us/b', 0.37, 41)])).toMatch(/us\/b \(37%\), us\/a \(63%\) all cost about 41.2 ms/);
  expect(rule([at('us/a', 0.5, 10), at('us/b', 0.5, 41)])).toMatch(/costs from 10 ms to 41 ms/);
});
