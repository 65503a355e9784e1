/** Cuts what arrives in pieces into lines of JSON. */
export class Lines {
  private rest = '';
  private readonly decoder = new TextDecoder();

  push(piece: Uint8Array): unknown[] {
    const parts = (this.rest + this.decoder.decode(piece, { stream: true })).split('\n');
    this.rest = parts.pop() ?? '';
    return parts.filter((p) => p !== '').map((p) => JSON.parse(p) as unknown);
  }
}
