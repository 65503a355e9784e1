// The parts of the browser tests that need servers of their own: a group of replicas,
// certificates, a token, a proxy, a restart.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { earlier } from './steps.mjs';

/** The screen of the replicas, before and after one is lost. */
export async function replicas(browser, addresses, order) {
  const page = await browser.newPage();
  await page.goto(`${addresses.group[0]}#/replicas`);
  await page.getByText('1 more replica may fail').or(page.getByText('2 more replicas may fail')).first().waitFor();
  const rows = page.locator('tbody tr');
  assert.equal(await rows.count(), 3);
  await page.locator('tbody .tag', { hasText: 'leads' }).waitFor();
  // Each of the three has two clients of its own.
  await page.locator('td', { hasText: /^2 of 2$/ }).nth(2).waitFor();
  await page.goto(`${addresses.group[1]}#/clients`);
  await page.getByText(/These are the clients of replica isobar-1/).waitFor();
  await page.goto(`${addresses.group[1]}#/clients?state=silent`);
  await page.getByText('All 2 report load.').waitFor();
  await page.goto(`${addresses.group[0]}#/replicas`);
  await page.locator('tbody .tag', { hasText: 'leads' }).waitFor();
  await order('lose');
  await page.locator('tbody .tag', { hasText: 'lost' }).waitFor();
  await page.locator('tbody .tag', { hasText: 'leads' }).waitFor(); // another one, if it was the leader
  await page.goto(addresses.group[0]);
  await page.getByRole('link', { name: /replica isobar-2/ }).click(); // it needs attention
  await page.getByRole('heading', { name: 'Replicas' }).waitFor();
  await page.close();
}

/** With certificates: an operator acts, a client looks, nobody else comes in. */
export async function access(browser, addresses) {
  const { origin } = new URL(addresses.secured);
  const open = async (who) => {
    const certificates = who ? [{ origin, certPath: who.cert, keyPath: who.key }] : [];
    const context = await browser.newContext({ ignoreHTTPSErrors: true, clientCertificates: certificates });
    return { context, page: await context.newPage() };
  };
  const nobody = await open(undefined);
  await assert.rejects(nobody.page.goto(addresses.secured, { timeout: 5000 }));
  await nobody.context.close();
  for (const [who, may] of [[addresses.client, false], [addresses.operator, true]]) {
    const { context, page } = await open(who);
    await page.goto(`${addresses.secured}#/service/orders`);
    await page.getByRole('button', { name: 'Pause…' }).click();
    await page.getByRole('button', { name: 'Pause orders now' }).click();
    if (may) {
      await page.getByText('Weights are paused').waitFor();
    } else {
      await page.getByRole('alert').getByText(/role admin/).first().waitFor();
    }
    await context.close();
  }
}

/** A proxy that serves the console beneath a path of its own and removes it. */
export async function base(browser, addresses) {
  const target = new URL(addresses.fleet);
  const proxy = createServer((from, to) => {
    if (!from.url.startsWith('/tools/isobar/')) {
      to.writeHead(404).end();
      return;
    }
    const on = request({ host: target.hostname, port: target.port, method: from.method, path: from.url.slice('/tools/isobar'.length), headers: from.headers }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    });
    on.on('error', () => to.destroy());
    from.pipe(on);
    to.on('close', () => on.destroy());
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  try {
    const page = await browser.newPage();
    const outside = [];
    page.on('request', (r) => {
      if (!new URL(r.url()).pathname.startsWith('/tools/isobar/')) outside.push(r.url());
    });
    await page.goto(`http://127.0.0.1:${proxy.address().port}/tools/isobar/`); // which leads on to ui/
    await page.locator('.meter').first().waitFor();
    await page.getByText('Live', { exact: true }).waitFor();
    await page.getByRole('link', { name: 'checkout', exact: true }).click();
    await page.getByRole('link', { name: /us-east\/a to us-east\/a/ }).click();
    await page.locator('.answer').first().waitFor();
    assert.deepEqual(outside.filter((u) => !u.endsWith('/favicon.ico')), []);
    await page.close();
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
}

/** A server that wants a token, beneath a base path: the same moment after a restart. */
export async function persist(browser, addresses, order) {
  const context = await browser.newContext();
  const page = await context.newPage();
  const login = async (hash, token) => {
    await page.goto('about:blank');
    await page.goto(`${addresses.kept}${hash}`);
    await page.getByLabel('Token of the admin API').fill(token);
    await page.getByRole('button', { name: 'Use it' }).click();
  };
  assert.match(new URL(addresses.kept).pathname, /^\/ops\/isobar\/ui\/$/);
  await login('', 'wrong');
  await page.getByText('The server refused this token.').waitFor();
  await login('#/time?service=orders&span=hour', addresses.token);
  await page.locator('.moves').first().waitFor();
  await earlier(page);
  const seen = async () => ({ change: await page.locator('.answer').first().innerText(), shares: (await page.locator('.then').innerText()).replace(/ now [<\d.]+ ?[\d.]*%/g, '') });
  const before = await seen();
  const url = new URL(page.url());
  // Nothing of the token stays: neither in cookies nor in any storage.
  assert.deepEqual(await context.cookies(), []);
  assert.deepEqual(await page.evaluate(() => [localStorage.length, sessionStorage.length]), [0, 0]);
  await order('restart');
  await login(url.hash, addresses.token);
  await page.locator('.then').waitFor();
  assert.deepEqual(await seen(), before);
  await context.close();
}
