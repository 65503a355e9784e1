import { Lines } from './lines';
import type { Difference, Problem } from './types';

/** The token lives in this variable only, and ends with the page. */
let token = '';

/** What the page knows of its access; `asks` shows the field for the token. */
export const access = $state({ asks: false, refused: false });

/** Whether what the screen shows is of now: the stream that it follows is there, or else its last question was answered. 'none' before that. */
export const link = $state<{ state: 'none' | 'live' | 'lost' }>({ state: 'none' });
let following = 0; // streams of the screen: where there is one, it alone tells

function heard(answered: boolean): void {
  if (following === 0) link.state = answered ? 'live' : 'lost';
}

export function useToken(t: string): void {
  token = t.trim();
  access.asks = false;
  access.refused = false;
  window.dispatchEvent(new Event('isobar-token'));
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
  ) {
    super(problem.error);
  }
}

// The page is served at …/ui/, and the API beside it.
const root = new URL('../', new URL('.', document.baseURI));

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set('Authorization', `Bearer ${token}`);
  let answer: Response;
  try {
    answer = await fetch(new URL(path, root), { ...init, headers, credentials: 'same-origin', cache: 'no-store', redirect: 'error' });
  } catch (e) {
    if (!init.signal?.aborted) heard(false);
    throw e;
  }
  heard(true);
  if (answer.ok) return answer;
  if (answer.status === 401) {
    access.asks = true;
    access.refused = token !== '';
  }
  let problem: Problem = { error: `HTTP ${answer.status}` };
  try {
    problem = (await answer.json()) as Problem;
  } catch {
    // a proxy between may answer something else than JSON
  }
  throw new ApiError(answer.status, problem);
}

export async function get<T>(path: string, query: Record<string, string> = {}, signal?: AbortSignal): Promise<T> {
  const search = new URLSearchParams(query).toString();
  return (await (await ask(search ? `${path}?${search}` : path, signal ? { signal } : {})).json()) as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await (await ask(path, { method: 'POST', body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })).json()) as T;
}

/** Asks whether the server is there: for screens that ask for nothing by themselves. */
export async function alive(signal: AbortSignal): Promise<void> {
  await (await ask('livez', { signal })).text();
}

/** Sends a text in YAML or JSON. */
export async function postText<T>(path: string, body: string): Promise<T> {
  return (await (await ask(path, { method: 'POST', body, headers: { 'Content-Type': 'application/yaml' } })).json()) as T;
}

/** Asks what would happen. The server answers one such question at a time and refuses those that waited too long, so that it is asked up to four times. */
export async function whatIf(body: unknown): Promise<Difference> {
  return patient(() => post<Difference>('v1/whatif', body));
}

/** Asks again where the server answers somebody else at the moment. */
export async function patient<T>(question: () => Promise<T>): Promise<T> {
  for (let i = 0; i < 3; i++) {
    try {
      return await question();
    } catch (e) {
      if (!(e instanceof ApiError && e.status === 503)) throw e;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
  return question();
}

/** Sends an order on what the page saw: it is refused if an operator changed that meanwhile. */
export async function order<T>(path: string, body: unknown, seen: string): Promise<T> {
  const headers = { 'Content-Type': 'application/json', 'If-Match': `"${seen}"` };
  return (await (await ask(path, { method: 'POST', body: JSON.stringify(body), headers })).json()) as T;
}

/**
 * Follows a stream of lines for as long as the page is looked at. It comes back
 * by itself, after a second first and half a minute at most. The function that it
 * returns ends it.
 */
export function follow<T>(path: string, line: (x: T) => void, state: (connected: boolean, error?: Error) => void): () => void {
  following++;
  let ended = false;
  let pause = 1000;
  let current: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  async function read(): Promise<void> {
    const mine = new AbortController();
    current = mine;
    try {
      const answer = await ask(path, { signal: mine.signal });
      const reader = answer.body?.getReader();
      if (!reader) throw new Error('this browser gives no stream');
      const lines = new Lines();
      state(true);
      link.state = 'live';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        pause = 1000;
        for (const x of lines.push(value)) line(x as T);
      }
      throw new Error('the server ended the stream');
    } catch (e) {
      if (mine.signal.aborted) return;
      state(false, e instanceof Error ? e : new Error(String(e)));
      link.state = 'lost';
      if (access.asks) return; // until there is a token
      timer = setTimeout(() => void read(), pause);
      pause = Math.min(2 * pause, 30_000);
    }
  }
  function look(): void {
    current?.abort();
    clearTimeout(timer);
    pause = 1000;
    if (!ended && !document.hidden) void read();
  }
  document.addEventListener('visibilitychange', look);
  window.addEventListener('isobar-token', look);
  look();
  return () => {
    ended = true;
    if (--following === 0) link.state = 'none';
    document.removeEventListener('visibilitychange', look);
    window.removeEventListener('isobar-token', look);
    look();
  };
}
