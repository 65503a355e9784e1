import { describe, expect, test } from 'vitest';
import { heat, part } from './heat';
import { Lines } from './lines';
import { format, nowhere, parse } from './route';
import { arrange, join, keep, window } from './rows';
import type { ServiceRow } from './types';

const row = (name: string, more: Partial<ServiceRow> = {}): ServiceRow => ({
  name, mode: 'full', serves: 'full', demand: 1, healthy: 1, endpoints: 1, shift: 0, moving: 0, drop: 0, gap: 0, coverage: 1,
  cross_zone: 0, cross_region: 0, egress_ms: 0, p99_ms: 0, ...more,
});

describe('heat', () => {
  test.each([
    [0, 0.8, 0], [0.2, 0.8, 1], [0.4, 0.8, 2], [0.65, 0.8, 3], [0.79, 0.8, 4], [0.8, 0.8, 4], [0.804, 0.8, 4], [0.81, 0.8, 5],
    [0.5, 0, 0], [NaN, 0.8, 0], [-1, 0.8, 0],
  ])('%d of %d', (used, ceiling, want) => expect(heat(used, ceiling)).toBe(want));
});

describe('a share', () => {
  test.each([[0, 0], [NaN, 0], [0.001, 1], [0.2, 2], [0.5, 3], [0.79, 3], [0.8, 4], [1, 4]])('of %d', (share, want) => expect(part(share)).toBe(want));
});

describe('lines', () => {
  const bytes = (s: string): Uint8Array => new TextEncoder().encode(s);
  test('come whole, however they were cut', () => {
    const text = '{"a":"é"}\n{}\n{"b":2}\n';
    for (let size = 1; size < 12; size++) {
      const lines = new Lines();
      const all = bytes(text);
      const out: unknown[] = [];
      for (let i = 0; i < all.length; i += size) out.push(...lines.push(all.slice(i, i + size)));
      expect(out).toEqual([{ a: 'é' }, {}, { b: 2 }]);
    }
  });
  test('that are not whole wait', () => expect(new Lines().push(bytes('{"a":'))).toEqual([]));
  test('that are no JSON are an error', () => expect(() => new Lines().push(bytes('<html>\n'))).toThrow());
});

describe('routes', () => {
  test.each(['', '#', '#/'])('%s is the fleet', (hash) => expect(parse(hash).screen).toBe('fleet'));
  test.each([['#/nothing', 'nothing'], ['#x/y', 'x'], ['#/service', 'service'], ['#/nowhere', 'nowhere']])('%s names no screen', (hash, name) => expect(parse(hash)).toMatchObject({ screen: nowhere, name }));
  test('keep every name', () => {
    for (const name of ['checkout', 'a/b', 'a?b=c&d', '<img src=x>', 'ü %', '#']) {
      const r = { screen: 'service', name, query: { from: 'us-east/a', to: 'x&y' } };
      expect(parse(format(r))).toEqual(r);
    }
  });
  test('leave out what is empty', () => expect(format({ screen: 'fleet', query: { find: '', sort: undefined } })).toBe('#/fleet'));
  test('survive escapes that are none', () => expect(parse('#/service/%zz').name).toBe('%zz'));
});

describe('rows', () => {
  test('join changes, and begin anew with a whole', () => {
    let known = join(new Map(), { whole: true, services: [row('a'), row('b')] });
    known = join(known, { whole: false, services: [row('b', { demand: 7 })] });
    expect([...known.values()].map((r) => [r.name, r.demand])).toEqual([['a', 1], ['b', 7]]);
    expect([...join(known, { whole: true, services: [row('c')] }).keys()]).toEqual(['c']);
    expect([...join(known, { status: undefined }).keys()]).toEqual(['a', 'b']);
  });
  test('are sorted and found', () => {
    const rows = [row('a', { demand: 2 }), row('Bee', { demand: 2 }), row('c', { demand: 9, fullest: { locality: 'x', utilization: 0.4, ceiling: 0.8 } })];
    const names = (text: string, key: string, down: boolean): string[] => arrange(rows, text, { key, down }).map((r) => r.name);
    expect(names('', 'demand', true)).toEqual(['c', 'Bee', 'a']);
    expect(names('', 'demand', false)).toEqual(['Bee', 'a', 'c']);
    expect(names('', 'fullest', true)[0]).toBe('c');
    expect(names(' bE ', 'name', false)).toEqual(['Bee']);
    expect(names('', 'nonsense', false)).toEqual(['Bee', 'a', 'c']);
  });
  test('stay where they are while their order is held', () => {
    const rows = [row('c'), row('a'), row('new'), row('b')];
    expect(keep(rows, ['a', 'gone', 'b', 'c', 'a'], (r) => r.name).map((r) => r.name)).toEqual(['a', 'b', 'c', 'new']);
    expect(keep([], ['a'], String)).toEqual([]);
  });
  test('in sight are few, whatever there are', () => {
    expect(window(10_000, 36, 0, 600)).toEqual({ from: 0, to: 27 });
    expect(window(10_000, 36, 3600, 600)).toEqual({ from: 90, to: 127 });
    expect(window(10_000, 36, 1e9, 600)).toEqual({ from: 9990, to: 10_000 });
    expect(window(3, 36, 0, 600)).toEqual({ from: 0, to: 3 });
  });
});
