import { describe, expect, test } from 'vitest';
import { clock } from './format';
import { bounds, headline, points, requests, rows, sides, wavers, way } from './net';
import type { ChangeMark, NetChange, NetMove, NetService } from './types';

const move = (before: number | undefined, after: number | undefined, more: Partial<NetMove> = {}): NetMove => {
  const known = [before, after].filter((x): x is number => x !== undefined);
  return {
    source: 'us-east/a', locality: 'eu-west/b', low: Math.min(...known), high: Math.max(...known), changes: 1,
    ...(before === undefined ? {} : { before }), ...(after === undefined ? {} : { after }), ...more,
  };
};
const service = (name: string, ...moves: NetMove[]): NetService => ({ service: name, changes: 12, reasons: [], move_count: moves.length, moves });
const net = (count: number, ...services: NetService[]): NetChange => ({
  version: '9', from: '2026-03-01T10:03:00Z', to: '2026-03-01T10:04:00Z', count, counted: count, since: '2026-03-01T10:03:05Z', event_count: 0, events: [], service_count: services.length, services,
});

describe('a share after a span', () => {
  for (const [name, m, want] of [
    ['more', move(0.12, 0.15, { rate: 30, changes: 3 }), ['12%', '15%', '+3', '+30', '3 changes']],
    ['fewer, back and forth', move(0.31, 0.29, { rate: -20, low: 0.12, high: 0.4, changes: 12 }), ['31%', '29%', '−2', '−20', '12 changes between 12% and 40%']],
    ['back to what it was', move(0.2, 0.2, { rate: 0, low: 0.12, high: 0.31, changes: 14 }), ['20%', 'unchanged', '', '', '14 changes between 12% and 31%']],
    ['of a source that came', move(undefined, 0.4), ['was not there', '40%', '', '', '1 change']],
    ['of a source that is gone', move(0.4, undefined), ['40%', 'is gone', '', '', '1 change']],
    ['less than figures show', move(0.2, 0.20001, { rate: 0.001 }), ['20%', 'unchanged', '', '', '1 change']],
    ['almost a whole point', move(0.1, 0.0001, { rate: -6 }), ['10%', '< 0.1%', '−10', '−6', '1 change']],
    ['a tenth of a point', move(0.2, 0.201, { rate: 1 }), ['20.0%', '20.1%', '+0.1', '+1', '1 change']],
  ] as [string, NetMove, string[]][]) {
    test(name, () => expect([...sides(m), points(m), requests(m), way(m)]).toEqual(want));
  }
  test('one that only went one way does not waver', () => {
    expect(wavers(move(0.1, 0.3, { changes: 5 }))).toBe(false);
    expect(wavers(move(0.2, 0.2, { low: 0.2, high: 0.20004, changes: 5 }))).toBe(false);
  });
  test('rows: what differs, then what went back, the widest first, and nothing that figures do not show', () => {
    const [small, wide, none, more] = [move(0.2, 0.2, { low: 0.19, changes: 2 }), move(0.5, 0.5, { low: 0.1, changes: 2 }), move(0.3, 0.3), move(0.1, 0.2)];
    expect(rows(service('x', small, wide, none, more))).toEqual([more, wide, small]);
    expect(rows(service('x', move(undefined, 0, { high: 0.3, changes: 4 })))).toEqual([]); // the source came, and sends nothing there
  });
});

describe('the sentence of a span', () => {
  const more = move(0.12, 0.15, { rate: 40, low: 0.1, high: 0.31, changes: 12 });
  const fewer = move(0.88, 0.85, { rate: -40, low: 0.69, high: 0.9, changes: 12, locality: 'us-east/a' });
  const back = move(0.2, 0.2, { low: 0.12, high: 0.31, changes: 14 });
  for (const [name, n, several, want] of [
    ['the side to which requests go', net(12, service('cart', fewer, more)), false, '12 changes, back and forth. After the minute, us-east/a sends 3 points more to eu-west/b (12% → 15%, +40 req/s).'],
    ['all as before', net(14, service('cart', back)), false, '14 changes, back and forth. After the minute, all shares are what they were before it.'],
    ['one way', net(2, service('cart', move(0.1, 0.11, { changes: 2 }))), false, '2 changes. After the minute, us-east/a sends 1 point more to eu-west/b (10% → 11%).'],
    [
      'several services', net(14, service('cart', more), service('search', move(0, 1)), service('users', back)), true,
      '14 changes, back and forth. After the minute, us-east/a sends 3 points more to eu-west/b of cart (12% → 15%, +40 req/s); 1 other service differs, too. 1 more service changed and is as before.',
    ],
    ['a service that is gone', net(2, { ...service('cart', move(0.4, undefined)), removed: true }), true, '2 changes. After the minute, cart is no longer there.'],
    ['clients that are gone', net(2, service('cart', move(0.4, undefined))), false, '2 changes. After the minute, clients in us-east/a are no longer there.'],
    ['clients that are new', net(2, service('cart', move(undefined, 0.4))), false, '2 changes. After the minute, clients in us-east/a, which were not there before it, send 40% to eu-west/b.'],
    ['drops alone', net(2, { ...service('cart'), drop_before: 0, drop_after: 0.05 }), true, '2 changes. After the minute, clients of cart are told to drop 5% of their requests, 0% before.'],
  ] as [string, NetChange, boolean, string][]) {
    test(name, () => expect(headline(n, 'the minute', several)).toBe(want));
  }
});

describe('what set changes off comes before the difference', () => {
  const made = '2026-03-01T10:03:07Z';
  const mark = (trigger: string, more: Partial<ChangeMark>): ChangeMark => ({ version: 7, previous: 6, made, trigger, services: 1, moved: 0.5, most: 'checkout', ...more });
  const outage = mark('health', { why: '100.0% of the requests moved off us-east/a: no healthy endpoint' });
  const over = service('pricing', move(0.12, 0.2, { low: 0.1, high: 0.31, changes: 12 }));
  const after = '57 changes, back and forth. After the minute, us-east/a sends 8 points more to eu-west/b';
  for (const [name, events, event_count, several, want] of [
    ['an outage that is over', [outage], 1, true, `Health of checkout changed at ${clock(made)}: 100% of the requests moved off us-east/a: no healthy endpoint. ${after} of pricing`],
    ['of one service, and its end', [outage, mark('health', { moved: 0.2 })], 2, false, `Health changed at ${clock(made)}: 100% of the requests moved off us-east/a: no healthy endpoint. And 1 more change of health, of the configuration or by an operator. ${after}`],
    ['more than are listed, of more services', [mark('topology', { services: 3 })], 9, true, `The configuration of checkout and 2 other services changed at ${clock(made)}: a client locality moved 50% of its traffic. And 8 more changes of health, of the configuration or by an operator. ${after} of pricing`],
    ['an operator', [mark('operator', { who: 'ann', reason: 'rollback to version 5.' })], 1, true, `ann acted on checkout at ${clock(made)}: rollback to version 5. ${after} of pricing`],
  ] as [string, ChangeMark[], number, boolean, string][]) {
    test(name, () => expect(headline({ ...net(57, over), events, event_count }, 'the minute', several)).toBe(`${want} (12% → 20%).`));
  }
});

test('what bounds the answer is told', () => {
  const clock = (at: string): string => at.slice(11, 19);
  expect(bounds(net(12), '2026-03-01T09:00:00Z', clock)).toBe('');
  expect(bounds(net(12), '2026-03-01T10:03:05Z', clock)).toBe('The history begins at 10:03:05: before is what was then.');
  expect(bounds({ ...net(1500), counted: 1000 }, undefined, clock)).toBe('Only the newest 1000 of the 1500 changes are compared: before is what was at 10:03:05.');
});
