import type { CapacityBasis } from './types';

interface Based {
  capacity_basis?: CapacityBasis;
}

/** The signs of capacities that nobody declared, and what they mean. */
export const bases = {
  estimated: { sign: '~', text: 'capacity estimated from what requests or endpoints report' },
  assumed: { sign: '?', text: 'capacity neither declared nor estimated: the plan assumes what demand needs, so utilization says little' },
} as const;

/** The sign of what the capacity of a locality rests on; '' where it is declared. */
export function sign(l: Based): string {
  return l.capacity_basis === 'estimated' || l.capacity_basis === 'assumed' ? bases[l.capacity_basis].sign : '';
}

/** The signs that the localities of a service need, each with its meaning. */
export function signs(all: Based[]): { sign: string; text: string }[] {
  return Object.values(bases).filter((x) => all.some((l) => sign(l) === x.sign));
}
