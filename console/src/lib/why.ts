import { ms, portions } from './format';
import type { LocalityWhy } from './types';

/** How far costs may differ and count as equal: nobody would move a request for less. */
const equal = 0.05;

/**
 * The rule by which a source's requests go to localities, with the costs of those that get
 * some: this says why a share is what it is, and not more or less.
 */
export function rule(localities: LocalityWhy[]): string {
  const text = 'Requests go to the localities of the lowest cost, which is network latency plus price. The price of a locality rises with its utilization.';
  const used = localities.filter((l) => l.target_share > 0).sort((a, b) => a.cost_ms - b.cost_ms);
  if (used.length === 0) return text;
  const [low, high] = [used[0]!, used[used.length - 1]!];
  if (used.length === 1) return `${text} ${low.locality} has the lowest, ${ms(low.cost_ms)}.`;
  const shares = portions(localities.map((l) => [l.locality, l.target_share]));
  const parts = used.map((l) => `${l.locality} (${shares.get(l.locality)})`).join(', ');
  if (high.cost_ms - low.cost_ms > Math.max(1, equal * high.cost_ms)) {
    return `${text} The target is ${parts}, at costs from ${ms(low.cost_ms)} to ${ms(high.cost_ms)}: shares are on their way, or a limit or rule below keeps them apart.`;
  }
  return `${text} ${parts} all cost about ${ms(high.cost_ms)}: the shares are those at which a move of requests from one to another saves nothing.`;
}
