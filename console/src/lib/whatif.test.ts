import { describe, expect, test } from 'vitest';
import { rounded } from './format';
import type { Difference, Service, Site, Three } from './types';
import { body, drainedOfAll, idle, incomplete, judge, outdated, problems, queryOf, questionOf, supposed } from './whatif';

const flat = (before: number, first = before, settled = first): Three => ({ before, first, settled });
const site = (locality: string, utilization: Three, ceiling = 0.8, declared = true): Difference['services'][number]['localities'][number] => ({ locality, utilization, ceiling, declared });
const service = (name: string, more: Partial<Difference['services'][number]> = {}): Difference['services'][number] => ({
  service: name, change: 'changed', drop: flat(0), latency_ms: flat(5), moved: 0.1, localities: [], sources: [], ...more,
});
const difference = (services: Difference['services'], more: Partial<Difference> = {}): Difference => ({
  version: '7', settled: true, ticks: 4, same: 0, latency_ms: flat(5), shed: flat(0), moved: 0.1, risks: [], services, ...more,
});
const risk = (name: string, locality = ''): { service: string; locality: string; text: string } => ({ service: name, locality, text: `${name}: worse` });

describe('judge', () => {
  const two = service('checkout', { localities: [site('us/a', flat(0.5, 0.6, 0.7)), site('us/b', flat(0.5, 0.5, 0))] });
  const over = service('checkout', { localities: [site('us/a', flat(0.7, 1.2, 1.27)), site('us/b', flat(0.7, 0.9, 0.95))] });
  test.each<[string, Difference, boolean, RegExp]>([
    ['nothing changes', difference([]), true, /^Yes: nothing would change\.$/],
    ['it fits', difference([two]), true, /^Yes: the capacity suffices\. The fullest would be us\/a, at 70% of its capacity; its ceiling is 80%\.$/],
    ['it fits just so', difference([service('checkout', { localities: [site('us/a', flat(0.5, 0.6, 0.797))] })]), true, /The fullest would be us\/a, at 79\.7% of its capacity; its ceiling is 80%\.$/],
    ['it serves nothing now', difference([two], { moved: 0 }), true, /^Yes: no requests would move\. The fullest would be us\/a/],
    ['it serves next to nothing now', difference([two], { moved: 0.0004 }), true, /^Yes: hardly any requests would move\. The fullest would be us\/a/],
    ['a ceiling is exceeded', difference([over], { risks: [risk('checkout', 'us/a'), risk('checkout', 'us/b')] }), false, /^No: us\/a would be at 127% of its capacity, above its ceiling of 80% \(70% now\), and 1 more problem\.$/],
    ['of several services', difference([over, service('cart')], { risks: [risk('checkout', 'us/a')] }), false, /^No: us\/a of checkout would be at 127%/],
    ['it drops', difference([service('checkout', { drop: flat(0, 0.1, 0.12) })], { risks: [risk('checkout')] }), false, /^No: clients of checkout would drop 12% of their requests \(0% now\)\.$/],
    ['nothing is left', difference([service('checkout', { dead: true })], { risks: [risk('checkout')] }), false, /^No: checkout would have no healthy endpoint left\.$/],
    ['at first only', difference([service('checkout', { localities: [site('us/a', flat(0.5, 0.9, 0.7))] })], { risks: [risk('checkout', 'us/a')] }), true, /^Yes, but at first us\/a would be at 90%/],
    ['it was so before', difference([service('checkout', { localities: [site('us/a', flat(0.9))] })]), true, /^Yes, it makes nothing worse\. But us\/a stays at 90%/],
    ['the server would refuse it', difference([two], { refusals: ['checkout: it would no longer survive the loss of us/a: us/c at 88.0% of its capacity, above its ceiling of 80.0%'] }), false, /^No: it would no longer survive the loss of us\/a: us\/c at 88% of its capacity, above its ceiling of 80%\.$/],
    ['no reserve is left', difference([two], { refusals: ['nothing breaks at once, but no reserve is left: checkout: it would no longer survive the loss of us/a: us/c at 88.0% of its capacity, above its ceiling of 80.0%'] }), false, /^No: nothing breaks at once, but no reserve is left: it would no longer survive the loss of us\/a: us\/c at 88%/],
    ['no reserve is left, and it breaks', difference([over], { risks: [risk('checkout', 'us/a')], refusals: ['nothing breaks at once, but no reserve is left: checkout: it would no longer survive the loss of us/a'] }), false, /^No: us\/a would be at 127%/],
    ['it was not checked', difference([two], { unchecked: 'it was not checked' }), false, /^Not certain: it was not checked\.$/],
    ['it moves still', difference([two], { settled: false }), false, /^Not certain: shares still move after 4 decisions/],
    ['no capacity is declared', difference([service('checkout', { localities: [site('us/a', flat(2), 0.8, false)] })]), true, /^Yes: nothing gets worse that is known/],
  ])('%s', (_, d, safe, text) => {
    const v = judge(d);
    expect(v.text).toMatch(text);
    expect(v.safe).toBe(safe);
  });
  test('tells of one problem, which need not be repeated', () => {
    const d = difference([over], { risks: [risk('checkout', 'us/a'), risk('checkout', 'us/b')] });
    const found = problems(d);
    expect(found.filter((p) => p !== judge(d, found).told).map((p) => p.text)).toEqual(['us/b would be at 95% of its capacity, above its ceiling of 80%']);
    const unchecked = difference([service('checkout', { localities: [site('us/a', flat(0.5, 0.9, 0.7))] })], { risks: [risk('checkout', 'us/a')], unchecked: 'it was not checked' });
    expect(judge(unchecked).told).toBeUndefined();
  });
});

describe('problems', () => {
  const texts = (d: Difference): string[] => problems(d).map((p) => `${p.early ? 'early: ' : ''}${p.text}${p.now ? `; ${p.now}` : ''}`);
  const many = difference(
    [
      service('cart', { localities: [site('us/a', flat(0.6, 0.9, 0.85)), site('us/b', flat(0.6, 1.6, 0.7))] }),
      service('checkout', { localities: [site('us/a', flat(0.7, 1.2, 1.2704)), site('us/b', flat(0.7, 1.2, 1.2699)), site('us/c', flat(0.7, 1.9, 1.9))] }),
      service('search', { drop: flat(0, 0.3, 0.1) }),
      service('web', { drop: flat(0.02, 0.3, 0.2) }),
      service('zero', { dead: true }),
    ],
    { risks: [risk('cart', 'us/a'), risk('cart', 'us/b'), risk('checkout', 'us/a'), risk('checkout', 'us/b'), risk('checkout', 'us/c'), risk('search'), risk('web'), risk('zero')] },
  );
  test('begin with the worst, and equal ones stand in the order of names', () => {
    expect(texts(many)).toEqual([
      'zero would have no healthy endpoint left',
      'clients of web would drop 20% of their requests; 2% now',
      'clients of search would drop 10% of their requests; 0% now',
      'us/c of checkout would be at 190% of its capacity, above its ceiling of 80%; 70% now',
      'us/a of checkout would be at 127% of its capacity, above its ceiling of 80%; 70% now',
      'us/b of checkout would be at 127% of its capacity, above its ceiling of 80%; 70% now',
      'us/a of cart would be at 85% of its capacity, above its ceiling of 80%; 60% now',
      'early: us/b of cart would be at 160% of its capacity, above its ceiling of 80%; 60% now',
    ]);
  });
  test('are as many as the verdict counts', () => {
    const all = problems(many);
    expect(judge(many, all).text).toBe(`No: zero would have no healthy endpoint left, and ${all.filter((p) => !p.early).length - 1} more problems.`);
  });
  test('are told once, although the server refuses for the same', () => {
    const survival = 'checkout: it would no longer survive the loss of us/b: us/c at 88.0% of its capacity, above its ceiling of 80.0%';
    const plain = 'checkout would no longer survive the loss of us/b: us/c at 88% of its capacity, above its ceiling of 80%';
    const refusals = ['checkout: us/a at 127.1% of its capacity, above its ceiling of 80.0%', 'web: clients drop 20.3% of the requests', 'zero: no endpoint is left: clients try all of them', survival, survival];
    expect(texts({ ...many, refusals })).toEqual([...texts(many).slice(0, 7), plain, ...texts(many).slice(7)]);
    const one = difference([service('checkout')], { refusals: [survival] });
    expect(problems(difference([], { refusals: [survival] }), survival.split(':')[0]).map((p) => p.text)).toEqual(problems(one).map((p) => p.text));
    expect(texts(one)).toEqual([rounded(survival).slice('checkout: '.length)]);
    const begin = 'nothing breaks at once, but no reserve is left: ';
    expect(texts({ ...many, refusals: [begin + survival] }).filter((t) => t.includes('survive'))).toEqual([plain]);
    expect(texts(difference([]))).toEqual([]);
  });
  test('of now are in no answer that says nothing is above its ceiling', () => {
    const early = difference([service('checkout', { localities: [site('us/a', flat(0.5, 0.9, 0.7))] })], { risks: [risk('checkout', 'us/a')], settled: false });
    expect(judge(early).text).toMatch(/^Not certain: shares still move after 4 decisions\. At first us\/a would be at 90%/);
  });
});

describe('an answer', () => {
  const at = (locality: string, more: Partial<Site> = {}): Site => ({
    locality, endpoints: 2, healthy: 2, capacity: 100, ceiling: 0.8, load: 50, unmanaged_load: 0, utilization: 0.5, price_ms: 1, ...more,
  });
  const standing = (localities: Site[], more: Partial<Service> = {}): Service => ({
    name: 'checkout', mode: 'full', policy: 'latency', coverage: 1, gap: 0, plan_gap: 0, drop: 0, ceiling_scale: 1, checked: true, localities,
    sources: [{ source: 'us/a', demand: 100, shares: [{ locality: 'us/a', target: 1, published: 1 }] }], ...more,
  });
  const was = standing([at('us/a'), at('us/b')]);
  const dead = at('us/b', { healthy: 0, capacity: 0, load: 0, utilization: 0 });
  test.each<[string, Service, boolean]>([
    ['shares move', standing([at('us/a', { load: 55, utilization: 0.55 }), at('us/b', { load: 45, utilization: 0.45 })]), false],
    ['an endpoint fails', standing([at('us/a'), at('us/b', { healthy: 1 })]), true],
    ['utilization moves far', standing([at('us/a', { utilization: 0.65 }), at('us/b')]), true],
    ['another capacity is believed', standing([at('us/a'), at('us/b', { capacity: 80 })]), true],
    ['more demand', standing(was.localities, { sources: [{ source: 'us/a', demand: 120, shares: [] }] }), true],
    ['weights are held', standing(was.localities, { hold: 'coverage' }), true],
    ['a locality is new', standing([...was.localities, at('us/c')]), true],
  ])('is out of date where %s', (_, now, yes) => {
    expect(outdated(was, now)).toBe(yes);
    expect(outdated(now, was)).toBe(yes);
    expect(outdated(now, now)).toBe(false);
  });
  test('tells why a drain changes nothing', () => {
    expect(idle(standing([at('us/a'), dead]), 'us/b', difference([]))).toBe(' us/b gets no traffic now: none of its 2 endpoints is healthy.');
    expect(idle(standing([at('us/a'), at('us/b', { load: 0 })]), 'us/b', difference([]))).toBe(' us/b gets no traffic now: no client locality has a share there.');
    expect(idle(was, 'us/b', difference([]))).toBe(''); // it has traffic: that is for another answer to tell
    expect(idle(was, 'us/b', difference([service('checkout')]))).toBe('');
  });
});

describe('what is supposed', () => {
  test('goes through the address', () => {
    const query = { lose: 'us-east/b, eu-west', service: 'checkout', demand: '120', drain: 'us-east/a', capacity: '50', where: 'eu-west/a' };
    expect(queryOf(supposed(query))).toEqual(query);
    expect(queryOf(supposed({}))).toEqual({});
    expect(queryOf(supposed({ demand: 'x', drain: 'us-east/a' }))).toEqual({ drain: 'us-east/a' }); // of all services
  });
  test('becomes a question', () => {
    expect(body(supposed({ lose: 'us-east/b' }))).toEqual({ lose: ['us-east/b'], drain: [], demand: [], capacity: [] });
    expect(body(supposed({ service: 'a', drain: 'x/y', demand: '150', capacity: '50' }))).toEqual({
      lose: [], drain: [{ service: 'a', locality: 'x/y' }], demand: [{ service: 'a', factor: 1.5 }], capacity: [{ service: 'a', locality: undefined, factor: 0.5 }],
    });
    expect(body(supposed({ service: 'a' }))).toBeUndefined();
  });
});

test('what is typed without its service is told, not dropped', () => {
  expect(incomplete(supposed({}))).toBe('');
  expect(incomplete(supposed({ lose: 'us-east/b' }))).toBe('');
  expect(incomplete(supposed({ drain: 'us-east/b' }))).toBe('');
  expect(incomplete(supposed({ capacity: '50' }))).toMatch(/^Name the service/);
  expect(incomplete(supposed({ service: 'checkout', where: 'us-east/b' }))).toMatch(/^Say which capacity/);
  expect(incomplete(supposed({ service: 'checkout', capacity: '50', where: 'us-east/b' }))).toBe('');
});

test('a drain is asked about by its names', () => {
  const asked = (query: Record<string, string>): string[] => [questionOf(supposed(query)), drainedOfAll(supposed(query))];
  expect(asked({ drain: 'us-east/b' })).toEqual(['May us-east/b be drained, for all services?', 'us-east/b']);
  expect(asked({ drain: 'us-east/b, eu-west', service: ' ' })).toEqual(['May us-east/b and eu-west be drained, for all services?', '']);
  expect(asked({ drain: 'us-east/b', service: 'checkout' })).toEqual(['May us-east/b of checkout be drained?', '']);
  expect(asked({ drain: 'us-east/b', lose: 'eu-west' })).toEqual(['Would the fleet carry it?', '']);
  expect(asked({ lose: 'us-east/b, eu-west' })).toEqual(['Would the fleet carry the loss of us-east/b and eu-west?', '']);
  expect(asked({ lose: 'us-east/b', demand: '120' })).toEqual(['Would the fleet carry it?', '']);
  expect(asked({ drain: 'us-east/b', demand: '120' })).toEqual(['Would the fleet carry it?', '']);
  expect(body(supposed({ drain: 'us-east/b' }))).toEqual({ lose: [], drain: [{ service: '', locality: 'us-east/b' }], demand: [], capacity: [] });
});
