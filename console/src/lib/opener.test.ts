import { describe, expect, test } from 'vitest';
import { cancels, Opener } from './opener';

const focusable = (localName: string, isConnected = true) => {
  const x = { localName, isConnected, focused: 0, focus: () => void x.focused++ };
  return x;
};

describe('a question', () => {
  test.each([
    ['Escape', {}, true],
    ['Enter', {}, false],
    ['Escape', { isComposing: true }, false],
    ['Escape', { defaultPrevented: true }, false],
  ])('%s %o cancels it: %s', (key, more, want) => expect(cancels({ key, isComposing: false, defaultPrevented: false, ...more })).toBe(want));

  test('returns the focus to the button that opened it', () => {
    const [button, other] = [focusable('button'), focusable('button')];
    const opener = new Opener();
    opener.remember(button);
    opener.giveBack(other);
    expect([button.focused, other.focused]).toEqual([1, 0]);
    opener.giveBack(other); // it is returned once
    expect([button.focused, other.focused]).toEqual([1, 1]);
  });

  test.each([
    ['nothing had it', null],
    ['the page had it', focusable('body')],
    ['what had it is gone', focusable('a', false)],
  ])('gives the focus to its own button where %s', (_, active) => {
    const own = focusable('button');
    const opener = new Opener();
    opener.remember(active);
    opener.giveBack(own);
    expect([own.focused, active?.focused ?? 0]).toEqual([1, 0]);
  });
});
