import { describe, expect, test } from 'vitest';
import { age, atMost, clock, count, digits, latency, ms, pair, percent, portions, rate, rounded, upTo, utc } from './format';

describe('numbers', () => {
  test.each([
    [0, '0'],
    [0.004, '0'],
    [0.5, '0.5'],
    [9.999, '10'],
    [12.34, '12.3'],
    [999.4, '999'],
    [NaN, '–'],
    [Infinity, '–'],
    [-3.14159, '-3.14'],
  ])('digits of %d', (x, want) => expect(digits(x)).toBe(want));

  test.each([
    [0, '0'],
    [9999, '9999'],
    [12_345, '12.3k'],
    [1_500_000, '1.5M'],
  ])('a rate of %d', (x, want) => expect(rate(x)).toBe(want));

  test.each([
    [0, '0%'],
    [0.0004, '< 0.1%'],
    [-0.0004, '> -0.1%'],
    [0.0449, '4.5%'],
    [0.05, '5%'],
    [0.3049, '30%'],
    [1, '100%'],
    [NaN, '–'],
  ])('%d as percent', (x, want) => expect(percent(x)).toBe(want));

  test.each([
    [0, 'at most 0%'],
    [0.0004, 'less than 0.1%'],
    [0.001, 'at most 0.1%'],
    [0.3, 'at most 30%'],
  ])('a bound of %d', (x, want) => expect(atMost(x)).toBe(want));

  test.each([
    [[0.105, 0.895, 0], ['10%', '90%', '0%']],
    [[0.335, 0.335, 0.33], ['34%', '33%', '33%']],
    [[0.049, 0.024, 0.903, 0.024], ['4.9%', '2.4%', '90.3%', '2.4%']],
    [[0.05, 0.95], ['5%', '95%']],
    [[0.0003, 0.9997], ['< 0.1%', '100%']],
    [[0.00004, 1], ['< 0.1%', '100%']],
    [[0.125, 0.125], ['13%', '12%']], // of what is no whole, the parts add up to what it is
    [[NaN, 1], ['–', '100%']],
    [[], []],
  ])('%j as parts of one whole', (shares, want) => expect([...portions(shares.map((x, i) => [`z${i}`, x] as const)).values()]).toEqual(want));
  test('parts do not depend on their order', () =>
    expect(portions([['b', 0.335], ['a', 0.335], ['c', 0.33]])).toEqual(new Map([['b', '33%'], ['a', '34%'], ['c', '33%']])));

  test.each([
    [0.5, 0.4, ['50%', '40%']],
    [0.8141, 0.8121, ['81.4%', '81.2%']],
    [0.8141, 0.8139, ['81%', '81%']],
    [0.5, 0.5, ['50%', '50%']],
  ])('%d beside %d', (before, after, want) => expect(pair(before, after)).toEqual(want));

  test.each([
    ['us/a at 127.4% of its capacity, above its ceiling of 80.0%', 'us/a at 127% of its capacity, above its ceiling of 80%'],
    ['us/a at 40.4% of its capacity, above its ceiling of 40.0%', 'us/a at 40.4% of its capacity, above its ceiling of 40.0%'],
    ['it drops 4.2%, and v1.5% stays', 'it drops 4.2%, and v1.5% stays'],
    ['100.0% moved, of 100.0%', '100% moved, of 100%'],
  ])('%s', (text, want) => expect(rounded(text)).toBe(want));

  test.each([[1, 'up to 100%'], [0.0004, 'less than 0.1%']])('%d moved', (x, want) => expect(upTo(x)).toBe(want));

  test.each([
    [0, '< 0.01 ms'],
    [0.004, '< 0.01 ms'],
    [0.03, '0.03 ms'],
    [12.5, '12.5 ms'],
  ])('a latency of %d ms', (x, want) => expect(latency(x)).toBe(want));

  test('milliseconds', () => expect(ms(12.5)).toBe('12.5 ms'));
  test('counts', () => expect([count(0, 'service'), count(1, 'service'), count(2, 'service')]).toEqual(['0 services', '1 service', '2 services']));
});

describe('times', () => {
  test('of the day have 24 hours, and begin with 00', () => {
    const d = new Date(2026, 2, 1, 0, 7, 9);
    expect(clock(d.toISOString())).toBe('00:07:09');
    expect(clock(new Date(2026, 2, 1, 15, 0, 0).toISOString())).toBe('15:00:00');
  });
  test.each([
    [5, '5 s'],
    [300, '5 min'],
    [7200, '2 h'],
    [86400 * 3, '3 d'],
  ])('an age of %d s', (x, want) => expect(age(x)).toBe(want));
  test('UTC', () => expect(utc('2026-03-01T14:03:00+02:00')).toBe('2026-03-01 12:03:00 UTC'));
});
