import { expect, test } from 'vitest';
import { verdictOf } from './verdicts';

test.each([
  [{}, 'healthy', false],
  [{ held: true }, 'healthy, held', true],
  [{ frozen: true }, 'healthy, frozen', false],
  [{ status: 'unknown', pending: true }, 'unknown, pending', true],
  [{ status: 'timeout' }, 'timeout', true],
])('the verdict %j reads %s', (flags, text, bad) => expect(verdictOf({ address: '', status: 'healthy', ...flags })).toEqual({ text, bad }));
