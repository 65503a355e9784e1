import { expect, test } from 'vitest';
import { destination } from './clients';

test('a client that does not follow its weights: where most of its requests go', () => {
  expect(destination({ to: 'us-east/a', to_share: 1 })).toBe('; it sends 100% to us-east/a');
  expect(destination({ to: '', to_share: 0.634 })).toBe('; it sends 63% to no locality');
  expect([destination({ to: 'us-east/a', to_share: 0 }), destination({})]).toEqual(['', '']); // not known
});
