import { describe, expect, test } from 'vitest';
import { trouble, troubles } from './clients';
import { skew, tolerance } from './replicas';
import type { Client, Group, Replica } from './types';

const replica = (name: string, more: Partial<Replica> = {}): Replica => ({
  name, live: true, engine_reached: true, plan_version: 100, plan_age_seconds: 1, discovery_streams: 0, load_report_streams: 0, checkers: 0,
  clients: 0, clients_in_sync: 0, isobar_version: '1.0', config_digest: 'abc', ...more,
});
const group = (replicas: Replica[], more: Partial<Group> = {}): Group => ({
  group: 'g', name: 'a', role: 'leader', since: '', leader: 'a', epoch: 3, engine_reached: true, removes: true, failures_to_spare: 2, configuration_agreed: true, replicas, ...more,
});

describe('a group', () => {
  test.each([
    [{ replicas: [replica('a', { caretaker: true }), replica('b')], engine_reached: false }, /^a leads the group without the election engine/],
    [{}, /a decides .*epoch 3.*2 more replicas may fail/],
    [{ failures_to_spare: 1 }, /1 more replica may/],
    [{ leader: undefined }, /No replica leads, so weights stay as they are\. /],
    [{ leader: undefined, awaits: 'the engine names b' }, /No replica leads, so weights stay as they are: the engine names b\. /],
    [{ failures_to_spare: 0 }, /last live replica/],
    [{ engine_reached: false }, /election engine/],
  ] as [Partial<Group>, RegExp][])('%j', (more, want) => expect(tolerance(group([replica('a'), replica('b')], more))).toMatch(want));
  test('that agrees has no skew, also with a plan under way or a lost replica', () =>
    expect(skew(group([replica('a'), replica('b', { plan_version: 99 }), replica('c', { live: false, plan_version: 1, config_digest: 'x' })]))).toEqual([]));
  test('that differs says in what, and who', () =>
    expect(skew(group([replica('a'), replica('b', { isobar_version: '1.1', config_digest: 'x', plan_version: 90 })]))).toEqual([
      'Versions of Isobar differ: 1.0 on a; 1.1 on b.', 'Configurations differ: abc on a; x on b.', 'b serves an older plan than version 100.',
    ]));
});

describe('a client', () => {
  const type = { subscribed: 1, sent_version: '1', acked_version: '1', age_seconds: 1, in_sync: true };
  const client = (more: Partial<Client>): Client => ({
    id: 'c', cluster: '', locality: '', agent: '', api_version: 'v3', peer: '', connected_since: '', types: { eds: type }, in_sync: true, lrs: { last_report: '', rejected: 0 }, ...more,
  });
  test.each([
    [{}, 'ok'],
    [{ lrs: undefined }, 'silent'],
    [{ missing: [{ name: 'x' }], lrs: undefined }, 'missing'],
    [{ in_sync: false, types: { eds: { ...type, in_sync: false } }, missing: [{ name: 'x' }] }, 'behind'],
    [{ in_sync: false, types: { eds: { ...type, in_sync: false, waiting: true, waiting_seconds: 3 } } }, 'behind'],
    [{ in_sync: false, types: { eds: { ...type, in_sync: false, waiting: true, waiting_seconds: 1 } } }, 'ok'], // it is about to answer
    [{ in_sync: false, types: { eds: { ...type, rejected: 1 } } }, 'refuses'],
  ] as [Partial<Client>, string][])('%j is %s', (more, want) => expect(trouble(client(more))).toBe(want));
  test('that is behind and reports no load is both', () => expect(troubles(client({ in_sync: false, types: {}, lrs: undefined }))).toEqual(['behind', 'silent']));
});
