import { expect, test } from 'vitest';
import type { LocalityWhy } from './types';
import { demandOf, rule } from './why';

const at = (locality: string, target_share: number, cost_ms: number): LocalityWhy => ({ locality, target_share, cost_ms, healthy: 2 }) as LocalityWhy;

test('a share has its rule and the costs beside it', () => {
  expect(rule([])).toMatch(/lowest cost, which is network latency plus price/);
  expect(rule([at('us/a', 1, 3), at('us/b', 0, 9)])).toMatch(/us\/a has the lowest, 3 ms\.$/);
  expect(rule([at('us/a', 0.63, 41.2), at('us/b', 0.37, 41)])).toMatch(/us\/b \(37%\), us\/a \(63%\) all cost about 41.2 ms/);
  expect(rule([at('us/a', 0.5, 10), at('us/b', 0.5, 41)])).toMatch(/costs from 10 ms to 41 ms/);
});

test('a locality that costs less and gets nothing is told, with the cause', () => {
  const used = [at('eu/a', 0.6, 3144), at('eu/b', 0.4, 3144)];
  const cheap = at('us/b', 0, 2894);
  const of = (more: Partial<LocalityWhy>, varies = false): string => rule([...used, { ...cheap, ...more }], varies);
  expect(of({})).toMatch(/all cost about 3144 ms, so that a move between them saves nothing\. us\/b costs 2894 ms and gets nothing, because a limit or a reason below/);
  expect(of({ drained: true })).toMatch(/us\/b costs 2894 ms and gets nothing, because it is drained\.$/);
  expect(of({}, true)).toMatch(/because the demand from here varies/);
  expect(of({ healthy: 0 })).toMatch(/saves nothing\.$/);
  expect(rule([at('eu/a', 1, 3144), cheap])).toMatch(/eu\/a gets all, at 3144 ms\. us\/b costs 2894 ms/);
});

test('costs of an earlier decision say nothing of a move now', () => {
  const text = rule([at('eu/a', 0.75, 50073), at('eu/b', 0.25, 50073), at('us/a', 0, 50005)], false, 'costs are of the last decision');
  expect(text).toMatch(/But costs are of the last decision\.$/);
  expect(text).not.toMatch(/saves nothing/);
});

test.each([
  [{ rate: 1200, nodes: 12, measured: true, report_age_seconds: 2.34 }, '1200 req/s, by 12 reporting clients; the newest report was 2 s old then'],
  [{ rate: 7, nodes: 1, measured: true, report_age_seconds: 300 }, '7 req/s, by 1 reporting client; the newest report was 5 min old then'],
  [{ rate: 7, nodes: 1, measured: true }, '7 req/s, by 1 reporting client'],
  [{ rate: 0, nodes: 0, measured: false }, '0 req/s, by 0 reporting clients: nothing was ever reported'],
])('the demand of %o is told with the age of its newest report', (demand, want) => expect(demandOf(demand)).toBe(want));
