import type { Verdict } from './types';

/** A verdict in the words of `isobar health`: one that its votes contradict does not read as well. */
export function verdictOf(v: Verdict): { text: string; bad: boolean } {
  const words = [v.status, v.frozen && 'frozen', v.pending && 'pending', v.held && 'held'];
  return { text: words.filter((w) => w).join(', '), bad: v.status !== 'healthy' || v.held === true };
}
