import { count } from './format';
import type { Group } from './types';

/** What happens if more replicas fail, in a sentence or two. */
export function tolerance(g: Group): string {
  const live = g.replicas.filter((r) => r.live).length;
  const lead = g.leader ? `${g.leader} decides for the group in epoch ${g.epoch}.` : `No replica leads, so weights stay as they are${g.awaits ? `: ${g.awaits}` : ''}.`;
  const caretaker = g.replicas.find((r) => r.caretaker);
  if (caretaker) return `${caretaker.name} leads the group without the election engine: health counts, weights stay as they are, and writes are refused.`;
  if (!g.engine_reached) return `${lead} This replica does not reach the election engine: after a failure of the leader no other one could lead.`;
  if (g.failures_to_spare < 1) return `${lead} If the last live replica fails, clients keep the weights that they have, and nothing follows demand.`;
  return `${lead} ${live} of ${g.replicas.length} replicas are live: ${count(g.failures_to_spare, 'more replica')} may fail and the rest goes on.`;
}

/** What differs between replicas, a sentence each. */
export function skew(g: Group): string[] {
  const live = g.replicas.filter((r) => r.live);
  const out: string[] = [];
  const differ = (what: string, of: (r: Group['replicas'][number]) => string | undefined): void => {
    const groups = new Map<string, string[]>();
    for (const r of live) {
      const v = of(r);
      if (v) groups.set(v, [...(groups.get(v) ?? []), r.name]);
    }
    if (groups.size > 1) out.push(`${what}: ${[...groups].map(([v, names]) => `${v} on ${names.join(', ')}`).join('; ')}.`);
  };
  differ('Versions of Isobar differ', (r) => r.isobar_version);
  differ('Configurations differ', (r) => r.config_digest);
  const newest = Math.max(0, ...live.map((r) => r.plan_version));
  // One version behind is a plan under way.
  const behind = live.filter((r) => r.plan_version < newest - 1);
  if (behind.length > 0) out.push(`${behind.map((r) => r.name).join(', ')} ${behind.length === 1 ? 'serves' : 'serve'} an older plan than version ${newest}.`);
  return out;
}
