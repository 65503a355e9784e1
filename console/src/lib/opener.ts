/** Whether a key cancels what is asked: Escape, unless it ends an input method or somebody else used it. */
export function cancels(e: Pick<KeyboardEvent, 'key' | 'isComposing' | 'defaultPrevented'>): boolean {
  return e.key === 'Escape' && !e.isComposing && !e.defaultPrevented;
}

interface Focusable {
  readonly isConnected: boolean;
  focus(): void;
}

/** What had the focus when a question was opened: it gets the focus back when the question is cancelled. */
export class Opener {
  private from: Focusable | undefined;

  /** Remembers what has the focus; the body has it where a link of another page opened the question. */
  remember(active: Pick<Element, 'localName' | 'isConnected'> | null): void {
    this.from = active && active.localName !== 'body' ? (active as unknown as Focusable) : undefined;
  }

  /** Gives the focus back, or to another place where what had it is gone. */
  giveBack(otherwise: Focusable | null | undefined): void {
    (this.from?.isConnected ? this.from : otherwise)?.focus();
    this.from = undefined;
  }
}
