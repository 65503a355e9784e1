import { count, percent, percentBeside, rounded } from './format';
import { slack } from './heat';
import type { Difference, Service } from './types';

/** Whether drains are all that is supposed. */
function drainsOnly(s: Supposed): boolean {
  return names(s.drain).length > 0 && s.lose.trim() === '' && !changes(s.demand) && !changes(s.capacity);
}

/** The question that is asked. */
export function questionOf(s: Supposed): string {
  const lost = names(s.lose);
  if (lost.length > 0 && s.drain.trim() === '' && !changes(s.demand) && !changes(s.capacity)) return `Would the fleet carry the loss of ${list(lost)}?`;
  if (!drainsOnly(s)) return 'Would the fleet carry it?';
  const [places, service] = [list(names(s.drain)), s.service.trim()];
  return service ? `May ${places} of ${service} be drained?` : `May ${places} be drained, for all services?`;
}

/** The place of which it is asked whether it may be drained for all services; '' where that is not the question. */
export function drainedOfAll(s: Supposed): string {
  const places = names(s.drain);
  return drainsOnly(s) && s.service.trim() === '' && places.length === 1 ? places[0]! : '';
}

function list(words: string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}

/** Names in a field, separated by commas. */
export function names(text: string): string[] {
  return text.split(',').map((s) => s.trim()).filter((s) => s !== '');
}

/** What is supposed to happen, as it stands in the address of the page. */
export interface Supposed {
  lose: string;
  service: string;
  drain: string;
  demand: number | null; // percent of today's; null: the field is empty
  capacity: number | null; // percent of what is declared
  where: string; // localities of the capacity
}

export function supposed(query: Record<string, string>): Supposed {
  const part = (key: string): number => {
    const x = Number(query[key] ?? 100);
    return Number.isFinite(x) && x >= 0 ? x : 100;
  };
  return {
    lose: query['lose'] ?? '', service: query['service'] ?? '', drain: query['drain'] ?? '', demand: part('demand'), capacity: part('capacity'), where: query['where'] ?? '',
  };
}

/** What is missing for an answer, in a sentence; '' where nothing is. */
export function incomplete(s: Supposed): string {
  if (s.service.trim()) return s.where.trim() && !changes(s.capacity) ? 'Say which capacity these localities would have.' : '';
  if (changes(s.capacity) || s.where.trim()) return 'Name the service of which the capacity changes.';
  return '';
}

/** The same as a query; what changes nothing is left out. */
export function queryOf(s: Supposed): Record<string, string> {
  const out: Record<string, string> = {};
  if (s.lose.trim()) out['lose'] = s.lose.trim();
  if (s.service.trim()) out['service'] = s.service.trim();
  if (changes(s.demand)) out['demand'] = String(s.demand);
  if (s.drain.trim()) out['drain'] = s.drain.trim();
  if (out['service'] && changes(s.capacity)) {
    out['capacity'] = String(s.capacity);
    if (s.where.trim()) out['where'] = s.where.trim();
  }
  return out;
}

/** The body of POST /v1/whatif; undefined where nothing is supposed to happen. */
export function body(s: Supposed): object | undefined {
  const service = s.service.trim();
  const out = {
    lose: names(s.lose),
    drain: names(s.drain).map((locality) => ({ service, locality })), // no service: all of them
    demand: changes(s.demand) ? [{ service, factor: s.demand / 100 }] : [],
    capacity: service && changes(s.capacity) ? places(s).map((locality) => ({ service, locality, factor: Number(s.capacity) / 100 })) : [],
  };
  return Object.values(out).some((x) => x.length > 0) ? out : undefined;
}

function changes(part: number | null): part is number {
  return part !== null && Number.isFinite(part) && part !== 100;
}

/** Where the capacity changes; undefined stands for all localities. */
function places(s: Supposed): (string | undefined)[] {
  const out = names(s.where);
  return out.length > 0 ? out : [undefined];
}

/** Whether a difference is safe, in a sentence that begins with yes or no. */
export interface Verdict {
  safe: boolean;
  text: string;
  told?: Problem | undefined; // the problem that the text tells of
}

/** Something that speaks against a difference. */
export interface Problem {
  text: string;
  now: string; // what is today, to be read behind it; may be empty
  early: boolean; // it is so at first only
}

/** How the server begins what speaks against a difference where nothing does before the loss of one more zone. */
const noReserve = 'nothing breaks at once, but no reserve is left: ';

/** What speaks against a difference, the worst first, each fact once: what it ends in, then what is too much at first only. service is the one that alone is asked about. */
export function problems(d: Difference, service = ''): Problem[] {
  const risky = new Set((d.risks ?? []).map((r) => `${r.service}\n${r.locality ?? ''}`));
  const whole = d.services.filter((s) => risky.has(`${s.service}\n`));
  const full = uses(d).filter((x) => risky.has(`${x.service}\n${x.locality}`));
  const said: string[] = []; // how the server begins to say the same
  const of = (s: { service: string }, text: string): string => {
    said.push(`${s.service}: ${text}`);
    return s.service;
  };
  const today = (x: number): string => `${percent(x)} now`;
  const drops = (s: Difference['services'][number], part: number): string => `clients of ${s.service} would drop ${percent(part)} of their requests`;
  const above = (x: Use, used: number): string => `${x.place}${named(d, x.service)} would be at ${percentBeside(used, x.ceiling)} of its capacity, above its ceiling of ${percent(x.ceiling)}`;
  const lasting = [
    ...whole.filter((s) => s.dead).map((s) => ({ text: `${of(s, 'no endpoint is left')} would have no healthy endpoint left`, now: '' })),
    ...whole.filter((s) => s.change === 'removed').map((s) => ({ text: `${s.service} would be removed while clients send to it`, now: '' })),
    ...worst(whole.filter((s) => s.drop.settled > s.drop.before + slack), (s) => s.drop.settled).map((s) => (of(s, 'clients drop '), { text: drops(s, s.drop.settled), now: today(s.drop.before) })),
    ...worst(full.filter((x) => x.settled > x.ceiling + slack), (x) => x.settled / x.ceiling).map((x) => (of(x, `${x.locality} at `), { text: above(x, x.settled), now: today(x.before) })),
  ];
  // A refusal begins with the service, which the question names already where it is about one.
  const [only] = d.services.length === 1 ? d.services : [];
  const alone = only || service ? `${only?.service ?? service}: ` : '\n';
  const early = [
    ...worst(whole.filter((s) => s.drop.settled <= s.drop.before + slack && s.drop.first > s.drop.before + slack), (s) => s.drop.first).map((s) => ({ text: drops(s, s.drop.first), now: today(s.drop.before) })),
    ...worst(full.filter((x) => x.settled <= x.ceiling + slack && x.first > x.ceiling + slack), (x) => x.first / x.ceiling).map((x) => ({ text: above(x, x.first), now: today(x.before) })),
  ];
  const bare = (text: string): string => (text.startsWith(alone) ? text.slice(alone.length) : text.replace(/^(\S+): it would /, '$1 would '));
  // Beside what does break, the words that nothing does are left out.
  const begin = lasting.length + early.length === 0 ? noReserve : '';
  const plain = (text: string): string => (text.startsWith(noReserve) ? begin + bare(text.slice(noReserve.length)) : bare(text));
  const refused = [...new Set(d.refusals ?? [])].filter((text) => !said.some((s) => text.startsWith(s))).map((text) => ({ text: rounded(plain(text)), now: '' }));
  return [...[...lasting, ...refused].map((p) => ({ ...p, early: false })), ...early.map((p) => ({ ...p, early: true }))];
}

/** The worst first; the order of names decides where the digits that are shown are equal. */
function worst<T>(all: T[], size: (x: T) => number): T[] {
  const key = (x: T): number => Math.round(1000 * Math.min(1e9, size(x)));
  return [...all].sort((a, b) => key(b) - key(a));
}

/**
 * Judges a difference as the server judges a drain: by what it ends in. What is too much
 * at first only is told behind a yes. found are its problems.
 */
export function judge(d: Difference, found: Problem[] = problems(d)): Verdict {
  const bad = found.filter((p) => !p.early);
  if (bad[0]) return { safe: false, told: bad[0], text: `No: ${told(bad[0])}${bad.length > 1 ? `, and ${count(bad.length - 1, 'more problem')}` : ''}.` };
  if (d.services.length === 0) return { safe: true, text: 'Yes: nothing would change.' };
  const [early] = found;
  const soFar = early ? `At first ${told(early)}.` : 'Nothing is above its ceiling so far.';
  if (!d.settled) return { safe: false, told: early, text: `Not certain: shares still move after ${count(d.ticks, 'decision')}. ${soFar}` };
  if (d.unchecked) return { safe: false, text: `Not certain: ${d.unchecked}.` };
  if (early) return { safe: true, told: early, text: `Yes, but at first ${told(early)}.` };
  const [most] = uses(d).filter((x) => x.ceiling > 0 && x.declared).sort((a, b) => b.settled / b.ceiling - a.settled / a.ceiling);
  if (!most) return { safe: true, text: 'Yes: nothing gets worse that is known. No capacity is declared, so utilization says little.' };
  const place = `${most.place}${named(d, most.service)}`;
  if (most.settled > most.ceiling + slack) {
    return { safe: true, text: `Yes, it makes nothing worse. But ${place} stays at ${percentBeside(most.settled, most.ceiling)} of its capacity, above its ceiling of ${percent(most.ceiling)}.` };
  }
  return { safe: true, text: `Yes: ${d.moved > slack ? 'the capacity suffices' : d.moved > 0 ? 'hardly any requests would move' : 'no requests would move'}. The fullest would be ${place}, at ${percentBeside(most.settled, most.ceiling)} of its capacity; its ceiling is ${percent(most.ceiling)}.` };
}

function told(p: Problem): string {
  return p.now ? `${p.text} (${p.now})` : p.text;
}

/** By how much utilization or demand may differ before an answer may differ, too. */
const drift = 0.1;

/**
 * Whether a service has changed so far since a question about it was asked that the answer
 * may be another one. Shares move at each tick: they alone do not count.
 */
export function outdated(then: Service, now: Service): boolean {
  if (!then.hold !== !now.hold || !then.paused !== !now.paused || then.localities.length !== now.localities.length) return true;
  const before = new Map(then.localities.map((l) => [l.locality, l]));
  return (
    apart(demandOf(then), demandOf(now)) ||
    now.localities.some((l) => {
      const was = before.get(l.locality);
      return !was || was.healthy !== l.healthy || was.endpoints !== l.endpoints || apart(was.capacity, l.capacity) || Math.abs(was.utilization - l.utilization) > drift;
    })
  );
}

function demandOf(s: Service): number {
  return s.sources.reduce((sum, x) => sum + x.demand, 0);
}

function apart(a: number, b: number): boolean {
  return Math.abs(a - b) > drift * Math.max(a, b);
}

/** Why a drain of a locality changes nothing, where it does not; '' otherwise. */
export function idle(s: Service, locality: string, d: Difference): string {
  const at = s.localities.find((l) => l.locality === locality);
  if (!at || d.services.length > 0 || at.load >= 0.05) return '';
  const why = at.healthy === 0 ? `none of its ${count(at.endpoints, 'endpoint')} is healthy` : 'no client locality has a share there';
  return ` ${locality} gets no traffic now: ${why}.`;
}

interface Use {
  service: string;
  locality: string;
  place: string;
  before: number;
  first: number;
  settled: number;
  ceiling: number;
  declared: boolean;
}

function uses(d: Difference): Use[] {
  return d.services.flatMap((s) =>
    s.localities.map((l) => ({
      service: s.service, locality: l.locality, place: l.locality || 'no locality', before: l.utilization.before, first: l.utilization.first, settled: l.utilization.settled, ceiling: l.ceiling, declared: l.declared,
    })),
  );
}

/** The service, where there are several. */
function named(d: Difference, service: string): string {
  return d.services.length > 1 ? ` of ${service}` : '';
}
