/** The steps of the scale of heat, as the classes heat-0 to heat-5 have them. */
export const steps = 6;

/** What a utilization may exceed its ceiling by: as in the risks of the server, less is rounding. */
export const slack = 0.005;

/**
 * The step of a utilization against its ceiling: 5 above the ceiling, else how
 * near it is. The scale goes from light to dark of one hue and ends in another one,
 * so that it reads without colours, too.
 */
export function heat(utilization: number, ceiling: number): number {
  if (!(ceiling > 0) || !(utilization > 0)) return 0;
  if (utilization > ceiling + slack) return 5;
  const x = utilization / ceiling;
  if (x >= 0.97) return 4;
  if (x >= 0.8) return 3;
  if (x >= 0.5) return 2;
  return 1;
}

/** The step of a share of what a row sends, as the classes share-1 to share-4 have it; 0 for none. */
export function part(share: number): number {
  if (!(share > 0)) return 0;
  return share >= 0.8 ? 4 : share >= 0.5 ? 3 : share >= 0.2 ? 2 : 1;
}
