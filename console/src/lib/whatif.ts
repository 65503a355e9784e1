/** Names in a field, separated by commas. */
export function names(text: string): string[] {
  return text.split(',').map((s) => s.trim()).filter((s) => s !== '');
}
