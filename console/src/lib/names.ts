/** Names that differ from one that was typed by at most so many letters may be meant. */
const near = 2;

/**
 * What may be meant where the server does not know one of the typed names: the nearest of those
 * that it knows, or else some of them. '' where all are known, or none is there to name.
 */
export function meant(typed: string[], known: string[], kind: string): string {
  const wrong = typed.find((t) => !known.includes(t));
  if (wrong === undefined || known.length === 0) return '';
  const longer = (x: string): number => Math.abs(x.length - wrong.length);
  const best = [...known].sort((a, b) => distance(plain(a), plain(wrong)) - distance(plain(b), plain(wrong)) || longer(a) - longer(b) || (a < b ? -1 : 1))[0]!;
  if (distance(plain(best), plain(wrong)) <= Math.min(near, wrong.length / 2)) return `No ${kind} is named ${wrong}. Did you mean ${best}?`;
  const few = known.slice(0, 8);
  return `No ${kind} is named ${wrong}. There ${known.length === 1 ? 'is' : 'are'} ${few.join(', ')}${known.length > few.length ? ` and ${known.length - few.length} more` : ''}.`;
}

/** Without case and separators, which are mistaken most. */
function plain(name: string): string {
  return name.toLowerCase().replace(/[^a-z0-9]/g, '');
}

/** The least number of letters to insert, remove or replace. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    row = next;
  }
  return row[b.length]!;
}

/** A word of a command line as a shell takes it. */
export function shellWord(text: string): string {
  return /^[a-zA-Z0-9_./:@%+=,][a-zA-Z0-9_./:@%+=,-]*$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
