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
  hold.listeners.onpointermove({ pointerType: 'mouse' });
  vi.advanceTimersByTime(50_000);
  expect(held).toBe(true);
  hold.listeners.onpointerleave({ pointerType: 'mouse' });
  expect(held).toBe(false);
});

test('a mouse that was forgotten holds them for a minute, and again once it moves', () => {
  hold.listeners.onpointermove({ pointerType: 'mouse' });
  vi.advanceTimersByTime(60_000);
  expect(held).toBe(false);
  hold.listeners.onpointermove({ pointerType: 'mouse' });
  expect(held).toBe(true);
});

test('the focus holds them, with and without the mouse', () => {
  hold.listeners.onfocusin();
  hold.listeners.onpointermove({ pointerType: 'mouse' });
  hold.listeners.onpointerleave({ pointerType: 'mouse' });
  expect(held).toBe(true);
  hold.listeners.onpointermove({ pointerType: 'mouse' });
  hold.listeners.onfocusout();
  expect(held).toBe(true);
  hold.listeners.onpointerleave({ pointerType: 'mouse' });
  expect(held).toBe(false);
});

test('behind a touch they stay for some seconds: its click comes after it left', () => {
  hold.listeners.onpointermove({ pointerType: 'touch' });
  hold.listeners.onpointerleave({ pointerType: 'touch' });
  vi.advanceTimersByTime(3900);
  expect(held).toBe(true);
  vi.advanceTimersByTime(200);
  expect(held).toBe(false);
});
