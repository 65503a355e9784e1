import { placeOf, Scrolls } from './scrolls';

/** The places of this page. */
export const scrolls = new Scrolls(history, String(performance.timeOrigin));

/** From here on Back returns to where the page and its lists were scrolled to. */
export function watchScrolls(): () => void {
  history.scrollRestoration = 'manual';
  scrolls.arrive();
  const over = new AbortController();
  for (const by of ['wheel', 'pointerdown', 'keydown', 'touchmove']) addEventListener(by, () => scrolls.settle(), { passive: true, signal: over.signal });
  const leave = scrolls.add('', placeOf(document.documentElement, [document.body]));
  return () => {
    over.abort();
    leave();
  };
}
