/** Brings a heading into sight where it is not, and the focus to it: what it is above has come by a click elsewhere. */
export function reveal(heading: HTMLElement | undefined): void {
  if (!heading) return;
  const { top, bottom } = heading.getBoundingClientRect();
  // Of what begins near the lower edge, nothing could be read.
  const seen = top >= 0 && bottom < 0.75 * innerHeight;
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  heading.focus({ preventScroll: true });
  if (!seen) heading.scrollIntoView({ block: 'start', behavior: still ? 'auto' : 'smooth' });
}
