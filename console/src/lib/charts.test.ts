import { describe, expect, test } from 'vitest';
import { fullest, labels, moves, newest, times, valueAt, words } from './charts';
import type { Samples } from './types';

const samples: Samples = {
  begin: '2026-03-01T14:00:00Z', step_seconds: 5, demand: [1, null, 3], drop: [0, null, 0], gap: [0, null, 0],
  cross_zone: [0, null, 0], cross_region: [0, null, 0],
  localities: [
    { locality: 'b', utilization: [0.1, null, 0.2] }, { locality: 'a', utilization: [0.9, null, null] }, { locality: '', utilization: [null, null, null] },
  ],
};

test('times', () => expect(times(samples).map((t) => t - Date.parse('2026-03-01T14:00:00Z') / 1000)).toEqual([0, 5, 10]));

describe('lines', () => {
  test('the fullest at any time come first', () => expect(fullest(samples).map((l) => l.name)).toEqual(['a', 'b', 'no locality']));
  test('only so many', () => {
    const localities = Array.from({ length: 40 }, (_, i) => ({ locality: `z${i}`, utilization: [i / 40] }));
    expect(fullest({ ...samples, localities }).map((l) => l.name)).toEqual(['z39', 'z38', 'z37', 'z36', 'z35', 'z34', 'z33', 'z32']);
  });
  test('a gap has the value before it', () => {
    expect([0, 1, 2, 9].map((i) => valueAt([1, null, 3], i))).toEqual([1, 1, 3, 3]);
    expect(valueAt([null], 0)).toBeNull();
  });
  test('in words', () => expect(words('Used', fullest(samples), true)).toBe('Used. a: 90% now, 90% to 90%; b: 20% now, 10% to 20%; no locality: nothing known'));
});

describe('changes', () => {
  test('the largest moves come first, and what stays is left out', () =>
    expect(
      moves({
        service: 's', reason: '', localities: ['x', 'y', 'z'],
        sources: [{ source: 'a', before: [5000, 5000, 0], after: [4000, 5000, 1000] }, { source: 'b', after: [0, 10_000, 0] }],
      }),
    ).toEqual([
      { source: 'b', locality: 'y', before: null, after: 1 },
      { source: 'a', locality: 'x', before: 0.5, after: 0.4 },
      { source: 'a', locality: 'z', before: 0, after: 0.1 },
    ]));
});

test('a move that its figures do not show is none', () =>
  expect(moves({ service: 's', reason: '', localities: ['x', 'y', 'z'], sources: [{ source: 'a', before: [50, 9950, 0], after: [52, 9944, 4] }] })).toEqual([
    { source: 'a', locality: 'y', before: 0.995, after: 0.9944 },
    { source: 'a', locality: 'z', before: 0, after: 0.0004 },
  ]));

describe('names of marks', () => {
  test('each in the first row that is free, on the left at the end', () => {
    const marks = [{ line: 0, width: 50 }, { line: 10, width: 50 }, { line: 70, width: 50 }, { line: 98, width: 20 }];
    expect(labels(marks, 100, 4)).toEqual([{ left: 4, row: 0 }, { left: 14, row: 1 }, { left: 16, row: 2 }, { left: 74, row: 0 }]);
  });
  test('none where no row is free', () => {
    const places = labels(Array.from({ length: 6 }, () => ({ line: 0, width: 50 })), 100, 4);
    expect(places.map((p) => p?.row)).toEqual([0, 1, 2, 3, 4, undefined]);
  });
  test('are in the words of a chart', () => {
    expect(words('Used', [], true, [{ at: 0, text: 'a zone is lost' }])).toMatch(/^Used\. \. Marked: \d\d:\d\d:\d\d a zone is lost$/);
  });
});

test('the newest value is none where the last samples have none', () => {
  expect(newest([0.75, 0.7, null, null, null])).toBeNull();
  expect(newest([0.75, null, null])).toBe(0.75);
  expect(newest([])).toBeNull();
  expect(words('Utilization', [{ name: 'us-east/b', values: [0.75, 0.7, null, null, null] }], true)).toContain('us-east/b: nothing now, 70% to 75%');
});
