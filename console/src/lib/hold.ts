/**
 * Says for how long rows keep their places, or they would change under a click: while a mouse is
 * over them or one of them has the focus, but a minute at most without a movement or a key. A
 * finger rests nowhere: behind its touch they keep their places for some seconds.
 */
export class Hold {
  private over = false; // the pointer is
  private focused = false;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** The listeners that the element with the rows has as its attributes. */
  readonly listeners = {
    onpointerenter: (e: Pointer) => this.moved(e.pointerType),
    onpointermove: (e: Pointer) => this.moved(e.pointerType),
    onpointerleave: (e: Pointer) => this.left(e.pointerType),
    onfocusin: () => this.focus(),
    onkeydown: () => this.focus(),
    onfocusout: () => this.blur(),
  };

  constructor(private readonly changed: (held: boolean) => void) {}

  /** The pointer came, or moved. */
  private moved(kind: string): void {
    this.over = kind === 'mouse' || kind === 'pen';
    this.keep(this.over ? still : touched);
  }

  private left(kind: string): void {
    if (kind === 'touch') return; // the click comes after it
    this.over = false;
    if (!this.focused) this.end();
  }

  /** A row has got the focus, or a key was used in one. */
  private focus(): void {
    this.focused = true;
    this.keep(still);
  }

  private blur(): void {
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

type Pointer = Pick<PointerEvent, 'pointerType'>;

const still = 60_000;
const touched = 4000;
