/**
 * Says for how long rows keep their places, or they would change under a click: while a mouse is
 * over them or one of them has the focus, but a minute at most without a movement or a key. A
 * finger rests nowhere: behind its touch they keep their places for some seconds.
 */
export class Hold {
  private over = false; // the pointer is
  private focused = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly changed: (held: boolean) => void) {}

  /** The pointer came, or moved. */
  moved(kind: string): void {
    this.over = kind === 'mouse' || kind === 'pen';
    this.keep(this.over ? still : touched);
  }

  left(kind: string): void {
    if (kind === 'touch') return; // the click comes after it
    this.over = false;
    if (!this.focused) this.end();
  }

  /** A row has got the focus, or a key was used in one. */
  focus(): void {
    this.focused = true;
    this.keep(still);
  }

  blur(): void {
    this.focused = false;
    if (!this.over) this.end();
  }

  /** The rows are others, or there are none anymore. */
  end(): void {
    clearTimeout(this.timer);
    this.changed(false);
  }

  private keep(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.changed(false), ms);
    this.changed(true);
  }
}

const still = 60_000;
const touched = 4000;
