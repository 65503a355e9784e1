import type { FleetLine, ServiceRow } from './types';

/** Joins what a line of the stream says with what is known. */
export function join(known: Map<string, ServiceRow>, line: FleetLine): Map<string, ServiceRow> {
  const next = line.whole ? new Map<string, ServiceRow>() : new Map(known);
  for (const row of line.services ?? []) next.set(row.name, row);
  return next;
}

/** How near a service is to the ceiling of its fullest locality; 1 is at it. */
export function pressure(r: ServiceRow): number {
  return r.fullest && r.fullest.ceiling > 0 ? r.fullest.utilization / r.fullest.ceiling : 0;
}

const keys: Record<string, (r: ServiceRow) => number | string> = {
  name: (r) => r.name,
  demand: (r) => r.demand,
  fullest: pressure,
  zone: (r) => r.cross_zone,
  region: (r) => r.cross_region,
  p99: (r) => r.p99_ms,
  mode: (r) => r.mode,
  health: (r) => (r.endpoints > 0 ? r.healthy / r.endpoints : 1),
};

export interface Order {
  key: string;
  down: boolean;
}

/** The rows that hold the text, in the order; names decide between equals. */
export function arrange(rows: Iterable<ServiceRow>, text: string, order: Order): ServiceRow[] {
  const key = keys[order.key] ?? keys['name']!;
  const wanted = text.trim().toLowerCase();
  const out = [...rows].filter((r) => r.name.toLowerCase().includes(wanted));
  const sign = order.down ? -1 : 1;
  return out.sort((a, b) => {
    const x = key(a);
    const y = key(b);
    if (x !== y) return x < y ? -sign : sign;
    return a.name < b.name ? -1 : 1;
  });
}

/** The rows in the order of names that was held; rows that came since are the last ones. */
export function keep<T>(rows: T[], names: string[], nameOf: (row: T) => string): T[] {
  const left = new Map(rows.map((r) => [nameOf(r), r]));
  const out: T[] = [];
  for (const name of names) {
    const row = left.get(name);
    if (row && left.delete(name)) out.push(row);
  }
  return [...out, ...left.values()];
}

/** The part of a list of rows of one height that is in sight, with some beside it. */
export function window(count: number, height: number, top: number, view: number, beside = 10): { from: number; to: number } {
  const from = Math.max(0, Math.min(count, Math.floor(top / height)) - beside);
  return { from, to: Math.min(count, Math.ceil((top + view) / height) + beside) };
}
