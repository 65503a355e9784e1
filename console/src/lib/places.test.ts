import { expect, test } from 'vitest';
import { placeOf } from './places';
import type { Attention } from './types';

const item = (code: string, more: Partial<Attention> = {}): Attention => ({ code, severity: 'warning', text: 'x', ...more });
const known = (name: string): boolean => name === 'checkout';

test.each([
  [item('locality_unhealthy', { service: 'checkout', locality: 'us-east/b' }), '#/service/checkout?part=endpoints'],
  [item('demand_does_not_fit', { service: 'checkout' }), '#/service/checkout?part=matrix'],
  [item('weights_held', { service: 'checkout' }), '#/service/checkout'],
  [item('clients_deviate', { service: 'checkout', client: 'c' }), '#/clients?find=c'],
  [item('locality_unhealthy', { service: 'gone' }), undefined],
  [item('replica_lost'), '#/replicas'],
  [item('probe_path_failing', { service: 'checkout' }), '#/checkers'],
  [item('probe_path_failing'), '#/checkers'],
] as [Attention, string | undefined][])('%j is shown at %s', (a, want) => expect(placeOf(a, known)).toBe(want));
