import { clock, count, pair, percent, rate, rounded } from './format';
import type { ChangeMark, NetChange, NetMove, NetService } from './types';

/** Whether a share reads differently after a span from before it. */
export function differs(m: NetMove): boolean {
  if (m.before === undefined || m.after === undefined) return (m.before ?? m.after ?? 0) > 0;
  const [a, b] = pair(m.before, m.after);
  return a !== b;
}

/** Whether a share went back and forth, as far as figures show it. */
export function wavers(m: NetMove): boolean {
  const [low, high] = pair(m.low, m.high);
  return m.changes > 1 && low !== high && m.high - m.low > Math.abs((m.after ?? 0) - (m.before ?? 0)) + 0.001;
}

/** The moves that are worth a row: those that differ, in their order, then those that went back, the widest first. */
export function rows(s: NetService): NetMove[] {
  const back = s.moves.filter((m) => !differs(m) && wavers(m) && (m.before === undefined) === (m.after === undefined)).sort((a, b) => b.high - b.low - (a.high - a.low));
  return [...s.moves.filter(differs), ...back];
}

/** The shares before and after, in words. */
export function sides(m: NetMove): [string, string] {
  if (m.before === undefined || m.after === undefined) {
    return [m.before === undefined ? 'was not there' : percent(m.before), m.after === undefined ? 'is gone' : percent(m.after)];
  }
  const [a, b] = pair(m.before, m.after);
  return [a, a === b ? 'unchanged' : b];
}

/** The difference in points of the share; '' where there is none, or nothing to compare with. */
export function points(m: NetMove): string {
  if (m.before === undefined || m.after === undefined || !differs(m)) return '';
  return signed(100 * (m.after - m.before), tenths);
}

/** The difference in requests/s; '' where it is not known or none. */
export function requests(m: NetMove): string {
  return m.rate === undefined || !differs(m) || Math.abs(m.rate) < 0.005 ? '' : signed(m.rate, rate);
}

/** Points with a tenth at most. */
function tenths(x: number): string {
  return x.toFixed(1).replace(/\.0$/, '');
}

function signed(x: number, show: (x: number) => string): string {
  return `${x < 0 ? '−' : '+'}${show(Math.abs(x))}`;
}

/** What lies between before and after. */
export function way(m: NetMove): string {
  const n = count(m.changes, 'change');
  if (!wavers(m)) return n;
  const [low, high] = pair(m.low, m.high);
  return `${n} between ${low} and ${high}`;
}

/** The largest difference of a service as one more: of the two sides of a move, where requests go to. */
export function largest(s: NetService): NetMove | undefined {
  const found = s.moves.filter(differs);
  const [first] = found;
  if (!first) return undefined;
  const size = (m: NetMove): number => Math.abs((m.after ?? 0) - (m.before ?? 0));
  const more = (m: NetMove): boolean => (m.after ?? 0) > (m.before ?? 0);
  return found.find((m) => m.source === first.source && more(m) && size(m) >= size(first) - 0.0005) ?? first;
}

/** Whether clients are told to drop another part after a span than before it. */
export function drops(s: NetService): boolean {
  const [a, b] = pair(s.drop_before ?? 0, s.drop_after ?? 0);
  return a !== b;
}

/** A change of health, of the configuration or by an operator, in words. several tells that services have to be named. */
function event(e: ChangeMark, several: boolean): string {
  const name = e.about ?? e.most;
  const others = e.services > 1 ? ` and ${count(e.services - 1, 'other service')}` : '';
  const named = (word: string): string => (several && name ? ` ${word} ${name}${others}` : '');
  const [what, told] =
    e.trigger === 'operator'
      ? [`${e.who || 'An operator'} acted${named('on')}`, e.reason]
      : [`${e.trigger === 'health' ? 'Health' : 'The configuration'}${named('of')} changed`, e.why && rounded(e.why)];
  const why = told || (e.moved > 0 ? `a client locality moved ${percent(e.moved)} of its traffic` : '');
  return `${what} at ${clock(e.made)}${why ? `: ${why.replace(/\.$/, '')}` : ''}.`;
}

/** What set changes off in a span, the largest first; '' where only regular adjustments changed anything. */
function events(n: NetChange, several: boolean): string {
  const [first] = n.events;
  if (!first) return '';
  const more = n.event_count - 1;
  return `${event(first, several)} ${more > 0 ? `And ${count(more, 'more change')} of health, of the configuration or by an operator. ` : ''}`;
}

/**
 * What set changes off in a span, then what differs after it from before it, in sentences: the
 * difference alone hides an outage that is over. span names it, such as "the minute"; several tells
 * that services have to be named.
 */
export function headline(n: NetChange, span: string, several: boolean): string {
  const back = n.services.some((s) => s.moves.some((m) => wavers(m) && m.before !== undefined && m.after !== undefined));
  const begin = `${events(n, several)}${count(n.count, 'change')}${back ? ', back and forth' : ''}`;
  const changed = n.services.filter((s) => s.moves.some(differs) || drops(s));
  const [first] = changed;
  if (!first) return `${begin}. After ${span}, ${several ? 'all shares of all services' : 'all shares'} are what they were before it.`;
  const others = several && n.service_count > n.services.length ? ` Of ${count(n.service_count, 'service')} that changed, the ${n.services.length} with the largest difference are compared.` : '';
  const same = n.services.length - changed.length;
  const went = several && same > 0 ? ` ${count(same, 'more service')} changed and ${same === 1 ? 'is' : 'are'} as before.` : '';
  return `${begin}. After ${span}, ${difference(first, several)}${several && changed.length > 1 ? `; ${count(changed.length - 1, 'other service')} ${changed.length === 2 ? 'differs' : 'differ'}, too` : ''}.${went}${others}`;
}

/** The largest difference of a service, in words. */
function difference(s: NetService, several: boolean): string {
  const of = several ? ` of ${s.service}` : '';
  if (s.removed && s.moves.length > 0 && s.moves.every((m) => m.after === undefined)) return `${s.service} is no longer there`;
  const m = largest(s);
  if (!m) return `clients${of} are told to drop ${percent(s.drop_after ?? 0)} of their requests, ${percent(s.drop_before ?? 0)} before`;
  const source = m.source || 'no locality';
  if (m.after === undefined) return `clients${of} in ${source} are no longer there`;
  if (m.before === undefined) return `clients${of} in ${source}, which were not there before it, send ${percent(m.after)} to ${m.locality}`;
  const [before, after] = sides(m);
  const x = Math.abs(100 * (m.after - m.before));
  const more = m.after > m.before ? 'more' : 'fewer';
  const sum = requests(m);
  return `${source} sends ${tenths(x)} ${tenths(x) === '1' ? 'point' : 'points'} ${more} to ${m.locality}${of} (${before} → ${after}${sum ? `, ${sum} req/s` : ''})`;
}

/** What a reader has to know of the bounds of an answer; '' where nothing. */
export function bounds(n: NetChange, oldest: string | undefined, clock: (at: string) => string): string {
  if (n.counted < n.count && n.since) return `Only the newest ${n.counted} of the ${n.count} changes are compared: before is what was at ${clock(n.since)}.`;
  if (oldest && n.since && Date.parse(oldest) > Date.parse(n.from)) return `The history begins at ${clock(oldest)}: before is what was then.`;
  return '';
}
