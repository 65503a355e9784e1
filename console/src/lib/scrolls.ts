// Where the page and its lists are scrolled to, for each entry of the browser's history, so that
// Back shows what was seen before. The browser cannot do that: the list is empty until the server
// answers. All of it ends with the page.

/** What scrolls. */
export interface Place {
  top(): number;
  scrollTo(top: number): void;
  /** Calls back whenever the content has another size; the function that it returns ends that. */
  onresize(look: () => void): () => void;
}

/** The history of the browser, as far as it is used. */
export interface Entries {
  readonly state: unknown;
  replaceState(state: unknown, unused: string): void;
}

const patience = 10_000; // ms for the content to come

export class Scrolls {
  private readonly tops = new Map<string, Map<string, number>>(); // by entry, then by place
  private readonly places = new Map<string, Place>();
  private readonly pending = new Map<string, () => void>(); // ends the wait for content of a place
  private entry = '';
  private wanted = new Map<string, number>(); // where the entry that came back was
  private last = 0;

  constructor(
    private readonly entries: Entries,
    private readonly unique: string, // among loads of the page: entries outlive it
  ) {}

  /** Whether the page came back to an entry, and nobody has scrolled since. */
  get returns(): boolean {
    return this.wanted.size > 0;
  }

  /** The address changed, to a new entry or back to one. What is on the screen is still that of the entry before. */
  arrive(): void {
    const state = this.entries.state as { entry?: string } | null;
    const next = state?.entry ?? `${this.unique}-${++this.last}`;
    if (next === this.entry) return;
    if (this.entry) this.tops.set(this.entry, this.now());
    if (!state?.entry) this.entries.replaceState({ ...state, entry: next }, '');
    this.entry = next;
    this.settle();
    this.wanted = new Map(this.tops.get(next));
  }

  /** What the address names is on the screen. */
  show(): void {
    for (const name of this.places.keys()) this.bringBack(name);
  }

  /** A place is on the screen until the function that it returns is called. */
  add(name: string, place: Place): () => void {
    this.places.set(name, place);
    this.bringBack(name);
    return () => {
      if (this.places.get(name) !== place) return;
      this.pending.get(name)?.();
      this.places.delete(name);
    };
  }

  /** Somebody scrolls, or is about to: nothing moves by itself any longer. */
  settle(): void {
    for (const end of [...this.pending.values()]) end();
    this.wanted = new Map();
  }

  /** Where all places are, or shall be as soon as there is enough of their content. */
  private now(): Map<string, number> {
    const tops = new Map(this.wanted);
    for (const [name, place] of this.places) if (!this.pending.has(name)) tops.set(name, place.top());
    return tops;
  }

  private bringBack(name: string): void {
    const [place, top] = [this.places.get(name), this.wanted.get(name)];
    if (!place || top === undefined) return;
    this.pending.get(name)?.();
    const look = (): void => {
      place.scrollTo(top);
      if (Math.abs(place.top() - top) <= 1) end();
    };
    const stop = place.onresize(look);
    const timer = setTimeout(() => end(), patience);
    const end = (): void => {
      stop();
      clearTimeout(timer);
      this.pending.delete(name);
    };
    this.pending.set(name, end);
    look();
  }
}

/** A place of what the browser shows, with the parts whose size decides how far it can be scrolled. */
export function placeOf(element: Element, parts: Iterable<Element>): Place {
  return {
    top: () => element.scrollTop,
    scrollTo: (top) => {
      element.scrollTop = top;
    },
    onresize: (look) => {
      const sizes = new ResizeObserver(look);
      for (const part of parts) sizes.observe(part);
      return () => sizes.disconnect();
    },
  };
}
