import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Hold } from './hold';

let held = false;
let hold: Hold;
beforeEach(() => {
  vi.useFakeTimers();
  held = false;
  hold = new Hold((x) => (held = x));
});
afterEach(() => {
  hold.end();
  vi.useRealTimers();
});

test('rows stay under a mouse that rests, until it leaves', () => {
  hold.moved('mouse');
  vi.advanceTimersByTime(50_000);
  expect(held).toBe(true);
  hold.left('mouse');
  expect(held).toBe(false);
});

test('a mouse that was forgotten holds them for a minute, and again once it moves', () => {
  hold.moved('mouse');
  vi.advanceTimersByTime(60_000);
  expect(held).toBe(false);
  hold.moved('mouse');
  expect(held).toBe(true);
});

test('the focus holds them, with and without the mouse', () => {
  hold.focus();
  hold.moved('mouse');
  hold.left('mouse');
  expect(held).toBe(true);
  hold.moved('mouse');
  hold.blur();
  expect(held).toBe(true);
  hold.left('mouse');
  expect(held).toBe(false);
});

test('behind a touch they stay for some seconds: its click comes after it left', () => {
  hold.moved('touch');
  hold.left('touch');
  vi.advanceTimersByTime(3900);
  expect(held).toBe(true);
  vi.advanceTimersByTime(200);
  expect(held).toBe(false);
});
