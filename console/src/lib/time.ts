import { percent } from './format';
import type { Span, Timeline } from './types';

/** A bar of the scrubber: one step of a timeline in which anything changed. */
export interface Bar {
  index: number;
  height: number; // 0 to 1
  kind: string; // the rarest trigger
  changes: number;
  moved: number;
}

/**
 * The bars of a timeline. The height is the root of what moved, so that small moves can
 * be seen beside large ones; a change that moved nothing has a short bar.
 */
export function bars(t: Timeline): Bar[] {
  const out: Bar[] = [];
  t.changes.forEach((changes, index) => {
    if (changes > 0) {
      const moved = t.moved[index] ?? 0;
      out.push({ index, height: Math.max(0.12, Math.sqrt(Math.min(1, moved))), kind: t.triggers[index] ?? '', changes, moved });
    }
  });
  return out;
}

/**
 * The part of a timeline since its history begins, so that a young server shows more than
 * an empty day; 24 steps at least.
 */
export function sinceOldest(t: Timeline): Timeline {
  const all = t.changes.length;
  const first = t.oldest ? Math.max(0, Math.min(all - 24, stepOf(t, Date.parse(t.oldest)) - 2)) : 0;
  if (first === 0) return t;
  return {
    ...t, begin: new Date(Date.parse(t.begin) + 1000 * t.step_seconds * first).toISOString(),
    changes: t.changes.slice(first), moved: t.moved.slice(first), triggers: t.triggers.slice(first),
  };
}

/** What is known by now of the time that a timeline shows: bars that stay where they are. */
export function still(shown: Timeline, latest: Timeline): Timeline {
  if (shown.step_seconds !== latest.step_seconds) return latest;
  const gone = stepOf(shown, Date.parse(latest.begin));
  const fill = <T>(old: T[], now: T[]): T[] => old.map((x, i) => now[i - gone] ?? x);
  return { ...shown, changes: fill(shown.changes, latest.changes), moved: fill(shown.moved, latest.moved), triggers: fill(shown.triggers, latest.triggers) };
}

/** The step of a moment (ms since 1970), which may lie outside of the timeline. */
export function stepOf(t: Timeline, at: number): number {
  return Math.floor((at - Date.parse(t.begin)) / (1000 * t.step_seconds));
}

/** From one moment on until another one, in ms since 1970. */
export interface Between {
  from: number;
  to: number;
}

/** When a step begins and ends. */
export function stepAt(t: Timeline, step: number): Between {
  const begin = Date.parse(t.begin);
  return { from: begin + Math.round(1000 * t.step_seconds * step), to: begin + Math.round(1000 * t.step_seconds * (step + 1)) };
}

/** The minute of a moment, in ms since 1970. */
export function minuteOf(at: number): Between {
  const from = Math.floor(at / 60_000) * 60_000;
  return { from, to: from + 60_000 };
}

/**
 * The time in which an event has its effect: a minute, or until the next event. Checkers
 * and clients need some seconds to notice, so that it is 15 s at least.
 */
export function effectOf(events: number[], at: number): Between {
  const next = Math.min(...events.filter((x) => x > at));
  return { from: at, to: Math.max(at + 15_000, Math.min(at + 60_000, next)) };
}

/** The steps at which an axis has its ticks: whole hours, or ten minutes. */
export function ticks(t: Timeline): { step: number; at: number }[] {
  const span = t.step_seconds * t.changes.length;
  const every = span > 6 * 3600 ? 4 * 3600 : span > 3600 ? 3600 : span > 1200 ? 600 : 120;
  const begin = Date.parse(t.begin) / 1000;
  const zone = new Date(1000 * begin).getTimezoneOffset() * 60;
  const out: { step: number; at: number }[] = [];
  for (let at = Math.ceil((begin - zone) / every) * every + zone; at < begin + t.step_seconds * t.changes.length; at += every) {
    out.push({ step: (at - begin) / t.step_seconds, at: 1000 * at });
  }
  return out;
}

/** The moment in the viewer's zone, in the form of ISO 8601. */
export function local(ms: number): string {
  const d = new Date(ms);
  return new Date(ms - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/**
 * The minute, or with seconds the second, that a text names in the viewer's zone, in ms since 1970: 2026-11-29 14:03,
 * also with a T or as 14:03:30, or 14:03 of the day of the moment beside. NaN where it names none.
 */
export function typed(text: string, day: number): number {
  const [, date, hour, minute, second = '00'] = /^(?:(\d{4}-\d\d-\d\d)[T ]+)?(\d\d?):(\d\d)(?::(\d\d))?$/.exec(text.trim()) ?? [];
  if (hour === undefined || minute === undefined || Number(hour) > 23 || Number(minute) > 59 || Number(second) > 59) return NaN;
  const found = new Date(`${date ?? local(day).slice(0, 10)}T${hour.padStart(2, '0')}:${minute}:${second}`);
  return local(found.getTime() || 0).startsWith(date ?? '') ? found.getTime() : NaN; // 30 February is no day
}

/** The moment as the field of a minute shows it: with seconds where it has any and is asked about by itself. */
export function shownMinute(ms: number, exact: boolean): string {
  const text = local(ms).replace('T', ' ');
  return exact && !text.endsWith(':00') ? text : text.slice(0, 16);
}

/** The last time before now at which a clock showed what it will at a moment to come. */
export function lastTime(ms: number, now: number): number {
  const at = new Date(now);
  const then = new Date(ms);
  at.setHours(then.getHours(), then.getMinutes(), then.getSeconds(), 0);
  if (at.getTime() >= now) at.setDate(at.getDate() - 1); // a day with a change of the clock has no 24 hours
  return at.getTime();
}

/**
 * A moment as the API takes it. One that the server named is kept to the nanosecond:
 * rounded down, it would be before the change that it names.
 */
export function instant(at: string): string {
  return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(at) ? at : new Date(at).toISOString();
}

/** What the first change of a span is among all of them: others may have moved as much, as far as the digits show. */
export function rank(s: Span): string {
  const [first, second] = s.changes;
  const tied = first && second && percent(first.moved) === percent(second.moved);
  return `${tied ? 'One of the largest' : 'The largest'} of ${s.count} changes`;
}

/** The time in the address of Time that names no moment or span; '' where there is none. */
export function unread(query: Record<string, string>): string {
  const { at, from, to } = query;
  if (at !== undefined && Number.isNaN(Date.parse(at))) return at;
  if (from === undefined && to === undefined) return '';
  return Date.parse(from ?? '') < Date.parse(to ?? '') ? '' : `${from ?? ''} to ${to ?? ''}`.trim();
}
