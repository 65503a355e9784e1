import { expect, test } from 'vitest';
import { meant, shellWord } from './names';

const zones = ['eu-west', 'eu-west/a', 'us-east', 'us-east/a', 'us-east/b'];

test.each([
  [['us-east-b'], 'No zone is named us-east-b. Did you mean us-east/b?'],
  [['us-east/a', 'US-East/B'], 'No zone is named US-East/B. Did you mean us-east/b?'],
  [['us-eats/b'], 'No zone is named us-eats/b. Did you mean us-east/b?'],
  [['moon'], 'No zone is named moon. There are eu-west, eu-west/a, us-east, us-east/a, us-east/b.'],
  [['x'], 'No zone is named x. There are eu-west, eu-west/a, us-east, us-east/a, us-east/b.'],
  [['us-east'], ''],
  [[], ''],
])('%j: %s', (typed, want) => expect(meant(typed, zones, 'zone')).toBe(want));

test('without names there is nothing to mean, and many are not all named', () => {
  expect(meant(['x'], [], 'zone')).toBe('');
  expect(meant(['zzzzzz'], Array.from({ length: 12 }, (_, i) => `a/${i}`), 'zone')).toMatch(/a\/7 and 4 more\.$/);
});

test.each([['checkout', 'checkout'], ['us-east/b', 'us-east/b'], ['', "''"], ['-x', "'-x'"], ["it's", `'it'\\''s'`], ['a b', "'a b'"]])('%j is the word %s', (text, want) => expect(shellWord(text)).toBe(want));
