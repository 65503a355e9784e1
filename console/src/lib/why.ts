import { age, count, ms, portions, rate } from './format';
import type { Explanation, LocalityWhy } from './types';

/** How far costs may differ and count as equal: nobody would move a request for less. */
const equal = 0.05;

/**
 * The rule by which a source's requests go to localities, with the costs of those that get
 * some: this says why a share is what it is, and not more or less. varies tells that demand does,
 * and earlier that costs are of another moment than health: then they say nothing of a move now.
 */
export function rule(localities: LocalityWhy[], varies = false, earlier = ''): string {
  const text = 'Requests go to the localities of the lowest cost, which is network latency plus price. The price of a locality rises with its utilization.';
  if (earlier) return `${text} But ${earlier}.`;
  const used = localities.filter((l) => l.target_share > 0).sort((a, b) => a.cost_ms - b.cost_ms);
  if (used.length === 0) return text;
  const [low, high] = [used[0]!, used[used.length - 1]!];
  const cheaper = localities.filter((l) => l.target_share === 0 && l.healthy > 0 && below(l.cost_ms, low.cost_ms));
  const others = cheaper.map((l) => ` ${l.locality} costs ${ms(l.cost_ms)} and gets nothing, because ${keptOut(l, varies)}.`).join('');
  if (used.length === 1) return `${text} ${low.locality} ${others ? 'gets all, at' : 'has the lowest,'} ${ms(low.cost_ms)}.${others}`;
  const shares = portions(localities.map((l) => [l.locality, l.target_share]));
  const parts = used.map((l) => `${l.locality} (${shares.get(l.locality)})`).join(', ');
  if (below(low.cost_ms, high.cost_ms)) {
    return `${text} The target is ${parts}, at costs from ${ms(low.cost_ms)} to ${ms(high.cost_ms)}: shares are on their way, or a limit or rule below keeps them apart.${others}`;
  }
  const same = `${text} ${parts} all cost about ${ms(high.cost_ms)}`;
  return others ? `${same}, so that a move between them saves nothing.${others}` : `${same}: the shares are those at which a move of requests from one to another saves nothing.`;
}

/** Whether a cost is below another one by more than what counts as equal. */
function below(a: number, b: number): boolean {
  return b - a > Math.max(1, equal * b);
}

/** Why a locality gets nothing although it costs less than those that get something. */
function keptOut(l: LocalityWhy, varies: boolean): string {
  if (l.forbidden) return 'a rule forbids it';
  if (l.unreachable || l.barred) return 'it is not reached from here';
  if (l.drained) return 'it is drained';
  return varies ? 'the demand from here varies: its cost counts steady demand only' : 'a limit or a reason below keeps requests away';
}

/** The demand of a source, who reports it, and how old the newest report was at the decision. */
export function demandOf(d: Pick<Explanation['demand'], 'rate' | 'nodes' | 'measured' | 'report_age_seconds'>): string {
  const text = `${rate(d.rate)} req/s, by ${count(d.nodes, 'reporting client')}`;
  if (!d.measured) return `${text}: nothing was ever reported`;
  return d.report_age_seconds ? `${text}; the newest report was ${age(d.report_age_seconds)} old then` : text;
}
