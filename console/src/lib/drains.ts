import type { Service } from './types';

/** The localities of which operators drained endpoints, and of how many. */
export function drainsOf(service: Service | null | undefined): Map<string, number> {
  const out = new Map<string, number>();
  for (const o of service?.health_overrides ?? []) if (o.status === 'draining') out.set(o.locality, (out.get(o.locality) ?? 0) + 1);
  return out;
}

/** The localities of which operators drained every endpoint. */
export function drainedWhole(service: Service | null | undefined): Set<string> {
  const drains = drainsOf(service);
  return new Set((service?.localities ?? []).filter((l) => l.endpoints > 0 && (drains.get(l.locality) ?? 0) >= l.endpoints).map((l) => l.locality));
}
