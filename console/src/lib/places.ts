import { format } from './route';
import type { Attention } from './types';

/** The part of a service's page that shows what needs attention; '' for the page itself. */
export function partOf(code: string): string {
  if (/^(locality_(unhealthy|drained|failing|failing_partly|returning)|endpoints_unhealthy|endpoint_failing|mass_failure_held|all_endpoints_down)$/.test(code)) return 'endpoints';
  if (/^(demand_does_not_fit|locality_overloaded|locality_unreachable|dropping|source_failing|requests_failing|shares_oscillate|limit_without_effect)$/.test(code)) return 'matrix';
  if (/^clients?_/.test(code)) return 'subscribers';
  return '';
}

/** Where what needs attention is shown, if the console shows it. */
export function placeOf(a: Attention, known: (service: string) => boolean): string | undefined {
  if (a.code === 'clients_deviate' && a.client) return format({ screen: 'clients', query: { find: a.client } });
  if (a.code === 'clients_deviate' && a.service) return format({ screen: 'service', name: a.service, query: { from: a.locality || '-' } });
  if (/^(replicas?|group|election)_/.test(a.code)) return format({ screen: 'replicas' });
  if (a.code.startsWith('checker') || a.code === 'probe_path_failing') return format({ screen: 'checkers' });
  if (a.code === 'clients_silent') return format({ screen: 'clients', query: { find: a.client } });
  if (a.service && known(a.service)) return format({ screen: 'service', name: a.service, query: { part: partOf(a.code) } });
  if (a.client || a.code.startsWith('client')) return format({ screen: 'clients', query: { find: a.client } });
  return undefined;
}
