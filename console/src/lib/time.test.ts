import { describe, expect, test } from 'vitest';
import { bars, effectOf, instant, lastTime, local, minuteOf, rank, shownMinute, sinceOldest, stepAt, stepOf, still, ticks, typed, unread } from './time';
import type { ChangeMark, Span, Timeline } from './types';

const hour: Timeline = {
  version: '9', begin: '2026-03-01T13:00:00Z', step_seconds: 15,
  changes: [0, 3, 1, ...Array<number>(237).fill(0)], moved: [0, 0.25, 0, ...Array<number>(237).fill(0)],
  triggers: ['', 'tick', 'operator', ...Array<string>(237).fill('')],
};

describe('a timeline', () => {
  test('has bars where anything changed, by the root of what moved', () =>
    expect(bars(hour)).toEqual([
      { index: 1, height: 0.5, kind: 'tick', changes: 3, moved: 0.25 },
      { index: 2, height: 0.12, kind: 'operator', changes: 1, moved: 0 },
    ]));
  test.each([['2026-03-01T13:00:00Z', 0], ['2026-03-01T13:00:14.999Z', 0], ['2026-03-01T13:00:15Z', 1], ['2026-03-01T12:59:59Z', -1]])('%s is in step %d', (at, want) =>
    expect(stepOf(hour, Date.parse(at))).toBe(want));
  test('a step begins where the one before it ends', () => {
    for (const step of [0, 7, 239]) expect(stepOf(hour, stepAt(hour, step).from)).toBe(step);
    expect(stepAt(hour, 7).to).toBe(stepAt(hour, 8).from);
  });
  test('begins where its history does', () => {
    expect(sinceOldest(hour)).toEqual(hour); // nothing is kept
    const young = sinceOldest({ ...hour, oldest: '2026-03-01T13:50:00Z' });
    expect(young.begin).toBe('2026-03-01T13:49:30.000Z');
    expect(young.changes).toHaveLength(42);
    expect(sinceOldest({ ...hour, oldest: '2026-03-01T13:59:50Z' }).triggers).toHaveLength(24);
    expect(sinceOldest({ ...hour, oldest: '2026-03-01T10:00:00Z' })).toEqual({ ...hour, oldest: '2026-03-01T10:00:00Z' });
  });
  test('that is kept still learns what comes, and does not move', () => {
    const later = { ...hour, begin: '2026-03-01T13:00:30Z', changes: [7, ...Array<number>(238).fill(0), 9] };
    const shown = still(hour, later);
    expect([shown.begin, shown.changes.length]).toEqual([hour.begin, 240]);
    expect(shown.changes.slice(0, 4)).toEqual([0, 3, 7, 0]);
    const young = { ...hour, changes: [1, 2], moved: [0, 0], triggers: ['', ''] };
    expect(still(young, hour).changes).toEqual([0, 3]);
    expect(still(hour, { ...later, step_seconds: 360 }).step_seconds).toBe(360);
  });
  test('an hour has a tick every ten minutes', () => {
    const found = ticks(hour).map((x) => x.at);
    expect(found).toHaveLength(6);
    expect(found.every((at) => at % 600_000 === 0)).toBe(true);
  });
});

test('a moment of the server stays what it is', () => {
  expect(instant('2026-03-04T05:06:07.123456789Z')).toBe('2026-03-04T05:06:07.123456789Z');
  expect(instant('2026-03-04T05:06:07+01:00')).toBe('2026-03-04T04:06:07.000Z');
});

describe('a typed minute', () => {
  const day = Date.parse('2026-11-29T12:00:00Z');
  test.each([
    ['2026-03-01 14:03', '2026-03-01T14:03:00'], [' 2026-03-01T04:03 ', '2026-03-01T04:03:00'], ['2026-03-01 14:03:59', '2026-03-01T14:03:59'],
    ['0:05', `${local(day).slice(0, 10)}T00:05:00`], ['23:59', `${local(day).slice(0, 10)}T23:59:00`],
  ])('%s is of the viewer', (text, want) => expect(local(typed(text, day))).toBe(want));
  test.each(['', '14', '24:00', '12:60', '12:05:60', '2:03 PM', '03/01/2026 14:03', '2026-02-30 14:03', '2026-13-01 14:03'])('%j names none', (text) => expect(typed(text, day)).toBeNaN());
});

describe('a minute that is still to come', () => {
  const at = (text: string): number => new Date(text).getTime();
  test.each([
    ['2026-03-01T14:03:00', '2026-03-01T10:12:00', '2026-02-28T14:03:00'],
    ['2026-03-09T14:03:30', '2026-03-01T15:12:00', '2026-03-01T14:03:30'],
    ['2026-03-02T00:01:00', '2026-03-01T23:59:00', '2026-03-01T00:01:00'],
  ])('%s was last before %s on %s', (ms, now, want) => expect(local(lastTime(at(ms), at(now)))).toBe(want));
});

test('the field shows seconds where they are asked about', () => {
  const at = new Date('2026-03-01T10:04:30').getTime();
  expect([shownMinute(at, true), shownMinute(at, false), shownMinute(at - 30_000, true)]).toEqual(['2026-03-01 10:04:30', '2026-03-01 10:04', '2026-03-01 10:04']);
});

test('a minute holds its seconds', () => {
  const at = Date.parse('2026-03-01T19:40:29.999Z');
  expect(minuteOf(at)).toEqual({ from: Date.parse('2026-03-01T19:40:00Z'), to: Date.parse('2026-03-01T19:41:00Z') });
});

test('an event has its effect until the next one, for 15 s at least and a minute at most', () => {
  expect(effectOf([0, 40_000, 45_000, 300_000], 0)).toEqual({ from: 0, to: 40_000 });
  expect(effectOf([0, 40_000, 45_000, 300_000], 40_000)).toEqual({ from: 40_000, to: 55_000 });
  expect(effectOf([0, 40_000, 45_000, 300_000], 300_000)).toEqual({ from: 300_000, to: 360_000 });
});

describe('the first change of a span', () => {
  const span = (...moved: number[]): Span => ({
    version: '9', from: '', to: '', count: 60,
    changes: moved.map((m, i): ChangeMark => ({ version: i, previous: 0, made: '', trigger: 'tick', services: 1, moved: m })),
  });
  test('is the largest', () => expect(rank(span(0.2, 0.1))).toBe('The largest of 60 changes'));
  test('is one of the largest where the next shows the same', () => expect(rank(span(0.2004, 0.1996, 0.1))).toBe('One of the largest of 60 changes'));
});

describe('the time in an address', () => {
  test.each<[Record<string, string>, string]>([
    [{}, ''],
    [{ service: 'x', at: '2026-03-01T13:00:00Z' }, ''],
    [{ from: '2026-03-01T13:00:00Z', to: '2026-03-01T13:01:00Z' }, ''],
    [{ at: 'yesterday' }, 'yesterday'],
    [{ from: '2026-03-01T13:01:00Z', to: '2026-03-01T13:00:00Z' }, '2026-03-01T13:01:00Z to 2026-03-01T13:00:00Z'],
    [{ from: 'noon', to: '2026-03-01T13:00:00Z' }, 'noon to 2026-03-01T13:00:00Z'],
    [{ to: '2026-03-01T13:00:00Z' }, 'to 2026-03-01T13:00:00Z'],
  ])('of %o that cannot be read is %s', (query, want) => expect(unread(query)).toBe(want));
});
