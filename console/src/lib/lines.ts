/** Cuts what arrives in pieces into lines of JSON. */
export class Lines {
  private rest: string[] = []; // of a line that is not whole: a long one comes in many pieces
  private readonly decoder = new TextDecoder();

  push(piece: Uint8Array): unknown[] {
    const text = this.decoder.decode(piece, { stream: true });
    const end = text.lastIndexOf('\n');
    if (end < 0) {
      this.rest.push(text);
      return [];
    }
    const whole = this.rest.join('') + text.slice(0, end);
    this.rest = [text.slice(end + 1)];
    return whole.split('\n').filter((p) => p !== '').map((p) => JSON.parse(p) as unknown);
  }
}
