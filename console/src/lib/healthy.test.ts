import { expect, test } from 'vitest';
import { healthy } from './healthy';

const neither = { bad: false, drained: false };

test.each([
  [[{ healthy: 4, endpoints: 4, draining: 0 }], false, { ...neither, title: '' }],
  [[{ healthy: 3, endpoints: 4, draining: 0 }], false, { ...neither, bad: true, title: '1 endpoint is not healthy' }],
  [[{ healthy: 2, endpoints: 4, draining: 2 }], false, { ...neither, drained: true, title: '2 endpoints are drained, which is no failure' }],
  [[{ healthy: 0, endpoints: 4, draining: 1 }], false, { ...neither, bad: true, title: '3 endpoints are not healthy; 1 endpoint is drained, which is no failure' }],
  [[{ healthy: 2, endpoints: 2, draining: 0 }, { healthy: 0, endpoints: 2, draining: 2 }], false, { ...neither, drained: true, title: '2 endpoints are drained, which is no failure' }],
  [[{ healthy: 4, endpoints: 4, draining: 0 }], true, { ...neither, bad: true, title: 'Checkers vote more endpoints down than that, and their verdicts are held' }],
  [[{ healthy: 3, endpoints: 4 }], false, { ...neither, bad: true, title: '1 endpoint is not healthy' }], // of an older server
  [[], false, { ...neither, title: '' }],
])('of %o, held %s', (counts, held, want) => expect(healthy(counts, held)).toEqual(want));
