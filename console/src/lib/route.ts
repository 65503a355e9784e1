// The state of the page is in the part of the address after the #: it stays in the
// browser, and a link shows the same to a colleague.

export interface Route {
  screen: string;
  name: string; // of a service; of the screen nowhere, what the address names instead
  query: Record<string, string>;
}

export const screens = ['fleet', 'service', 'time', 'whatif', 'clients', 'checkers', 'replicas', 'regions'] as const;

export function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const [screen = '', name = ''] = path.split('/', 2).map(decoded);
  const query: Record<string, string> = {};
  for (const [k, v] of new URLSearchParams(search)) query[k] = v;
  if (screen === '') return { screen: 'fleet', name, query };
  const there = (screens as readonly string[]).includes(screen) && (screen !== 'service' || name !== '');
  return there ? { screen, name, query } : { screen: nowhere, name: screen, query };
}

export function format(r: { screen: string; name?: string; query?: Record<string, string | undefined> }): string {
  const search = new URLSearchParams();
  for (const [k, v] of Object.entries(r.query ?? {})) if (v) search.set(k, v);
  const text = search.toString();
  return `#/${r.screen}${r.name ? `/${encodeURIComponent(r.name)}` : ''}${text ? `?${text}` : ''}`;
}

/** The screen of an address that names nothing. */
export const nowhere = 'nowhere';

/** Puts the text of a filter into the address, without a step back for each letter. */
export function find(screen: string, query: Record<string, string>, text: string): void {
  history.replaceState(history.state, '', format({ screen, query: { ...query, find: text || undefined } }));
  window.dispatchEvent(new HashChangeEvent('hashchange'));
}

function decoded(s: string): string {
  try {
    return decodeURIComponent(s);
  } catch {
    return s;
  }
}
