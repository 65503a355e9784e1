/**
 * Reads at once and every so many ms while the page is looked at. The function that
 * it returns ends it.
 */
export function poll(every: number, read: (signal: AbortSignal) => void): () => void {
  const mine = new AbortController();
  const look = (): void => {
    if (!document.hidden) read(mine.signal);
  };
  look();
  const timer = setInterval(look, every);
  document.addEventListener('visibilitychange', look);
  window.addEventListener('isobar-token', look);
  return () => {
    clearInterval(timer);
    document.removeEventListener('visibilitychange', look);
    window.removeEventListener('isobar-token', look);
    mine.abort();
  };
}
