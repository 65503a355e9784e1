import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Scrolls, type Place } from './scrolls';

/** A history of entries, one of which is current. */
class Past {
  private readonly states: unknown[] = [null];
  private at = 0;
  get state(): unknown {
    return this.states[this.at];
  }
  replaceState(state: unknown): void {
    this.states[this.at] = state;
  }
  push(): void {
    this.states.splice(++this.at, Infinity, null);
  }
  go(by: number): void {
    this.at += by;
  }
}

/** A list that scrolls no further than its content goes. */
class List implements Place {
  private at = 0;
  private readonly looks = new Set<() => void>();
  constructor(private height: number) {}
  top(): number {
    return this.at;
  }
  scrollTo(top: number): void {
    this.at = Math.min(top, this.height);
  }
  onresize(look: () => void): () => void {
    this.looks.add(look);
    return () => this.looks.delete(look);
  }
  grow(height: number): void {
    this.height = height;
    for (const look of [...this.looks]) look();
  }
}

describe('a list', () => {
  let past: Past;
  let scrolls: Scrolls;
  const arrive = (): void => {
    scrolls.arrive();
    scrolls.show();
  };
  /** Leaves a list at 500, looks at something else, and comes back. */
  const leaveAndReturn = (): void => {
    const list = new List(1000);
    const gone = scrolls.add('services', list);
    list.scrollTo(500);
    past.push();
    arrive();
    gone();
    past.go(-1);
    arrive();
  };

  beforeEach(() => {
    vi.useFakeTimers();
    past = new Past();
    scrolls = new Scrolls(past, 'load');
    arrive();
  });
  afterEach(() => void vi.useRealTimers());

  test('is where it was after Back, once its rows have come', () => {
    leaveAndReturn();
    expect(scrolls.returns).toBe(true);
    const list = new List(0);
    scrolls.add('services', list);
    list.grow(300);
    expect(list.top()).toBe(300);
    list.grow(2000);
    expect(list.top()).toBe(500);
    list.scrollTo(700); // which nothing takes back
    list.grow(3000);
    expect(list.top()).toBe(700);
  });

  test('begins at its top where the entry is new', () => {
    leaveAndReturn();
    past.push();
    arrive();
    expect(scrolls.returns).toBe(false);
    const list = new List(1000);
    scrolls.add('services', list);
    expect(list.top()).toBe(0);
  });

  test('stays where somebody scrolls it to before all rows have come', () => {
    leaveAndReturn();
    const list = new List(0);
    scrolls.add('services', list);
    scrolls.settle();
    list.grow(1000);
    expect(list.top()).toBe(0);
  });

  test('waits some seconds for its rows, no longer', () => {
    leaveAndReturn();
    const list = new List(0);
    scrolls.add('services', list);
    vi.advanceTimersByTime(60_000);
    list.grow(1000);
    expect(list.top()).toBe(0);
  });

  test('is found again where it was left before its rows had come', () => {
    leaveAndReturn();
    const gone = scrolls.add('services', new List(0));
    past.push();
    arrive();
    gone();
    past.go(-1);
    arrive();
    const list = new List(1000);
    scrolls.add('services', list);
    expect(list.top()).toBe(500);
  });

  test('stays while the same entry has another address, as where a filter is typed', () => {
    const list = new List(1000);
    scrolls.add('services', list);
    list.scrollTo(200);
    arrive();
    expect(list.top()).toBe(200);
    expect(scrolls.returns).toBe(false);
  });

  test('that stays on the screen is scrolled, too', () => {
    const list = new List(1000);
    scrolls.add('services', list);
    list.scrollTo(400);
    past.push();
    arrive();
    list.scrollTo(900);
    past.go(-1);
    arrive();
    expect(list.top()).toBe(400);
    past.go(1);
    arrive();
    expect(list.top()).toBe(900);
  });
});
