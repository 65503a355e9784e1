// What does not depend on the machine: rows in the page, requests, and the narrowest screen.
import assert from 'node:assert/strict';
import { createServer, request } from 'node:http';
import { quiet } from './steps.mjs';

/** Ten thousand services are a few rows at a time. */
export async function rows(browser, address) {
  const line = await firstLine(address);
  line.services = Array.from({ length: 10_000 }, (_, i) => ({ ...line.services[0], name: `service-${String(i).padStart(5, '0')}` }));
  const page = await browser.newPage({ viewport: { width: 2560, height: 1440 } });
  await page.route('**/v1/stream', (route) => route.fulfill({ contentType: 'application/x-ndjson', body: `${JSON.stringify(line)}\n` }));
  await page.goto(address);
  await page.getByRole('link', { name: 'service-00000' }).waitFor();
  const most = await page.evaluate(async () => {
    const list = document.querySelector('.tall');
    let found = 0;
    for (let i = 0; i < 50; i++) {
      list.scrollTop = (i / 49) * list.scrollHeight;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      found = Math.max(found, list.querySelectorAll('tbody tr').length);
    }
    return found;
  });
  await page.getByRole('link', { name: 'service-09999' }).waitFor(); // the end was reached
  assert.ok(most <= 100, `${most} rows in the page`);
  await page.close();
  return most;
}

/** The first line of the stream of the first page, or of a service. */
export async function firstLine(address, service = '') {
  const answer = await fetch(new URL(`../v1/stream${service && `?service=${service}`}`, address));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('\n')) text += (await reader.read()).value;
  await reader.cancel();
  return JSON.parse(text.slice(0, text.indexOf('\n')));
}

/** A server beside that of an address, whose stream sends a text, and then what `use` sends. */
export async function standIn(address, text, use) {
  const streams = [];
  const server = createServer((from, to) => {
    if (from.url.startsWith('/v1/stream')) {
      to.writeHead(200, { 'Content-Type': 'application/x-ndjson' }).flushHeaders();
      if (text) to.write(text);
      streams.push(to);
      return;
    }
    from.pipe(request(new URL(from.url, address), { method: from.method, headers: { ...from.headers, host: new URL(address).host } }, (answer) => {
      to.writeHead(answer.statusCode, answer.headers);
      answer.pipe(to);
    }));
  }).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  try {
    return await use(`http://127.0.0.1:${server.address().port}/ui/`, (line) => streams.forEach((s) => s.write(`${JSON.stringify(line)}\n`)));
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** A page that has no data yet does not say that there are no services. */
export async function loading(browser, address) {
  await standIn(address, '', async (at) => {
    const page = await browser.newPage();
    await page.goto(at);
    await page.getByText('Live', { exact: true }).waitFor();
    assert.doesNotMatch(await page.locator('main').innerText(), /There are no services|Nothing needs attention/);
    await page.close();
  });
}

/** What needs attention comes and goes, and the table stays where it is under a pointer that moves. */
export async function steady(browser, address) {
  const line = await firstLine(address);
  const status = (attention, n1) => ({ ...line.status, attention, n1 });
  await standIn(address, `${JSON.stringify({ ...line, status: status([], undefined) })}\n`, async (at, send) => {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await page.goto(at);
    const heading = (name) => page.getByRole('heading', { name }).waitFor();
    const top = async () => (await page.locator('table.rows').boundingBox()).y;
    await heading('Nothing needs attention');
    const before = await top();
    const card = await page.locator('.needs').boundingBox();
    assert.ok(card.height < 60, `nothing takes ${card.height} pixels`);
    send({ status: status([], { services: 9999, failing: 1, at_limit: 9000, worst: [] }) });
    await page.getByText('9000 at limit').waitFor();
    assert.equal(await top(), before);
    await page.mouse.move(700, 600);
    send({ status: status(Array(20).fill(item), { services: 3, failing: 1, at_limit: 0, worst: [] }) });
    await heading('20 things need attention');
    assert.equal(await top(), before);
    // Once the pointer rests, three of them can be read.
    for (let i = 0; (await top()) === before; i++) {
      assert.ok(i < 100, 'the card does not grow');
      await page.waitForTimeout(100);
    }
    assert.equal(await page.locator('.attention li').count(), 3);
    assert.ok(await fits(page));
    await page.close();
  });
}

const item = { code: 'no_load', severity: 'warning', text: 'no client has reported load' };

/** Whether all that is listed of what needs attention can be read. */
function fits(page) {
  return page.locator('.attention').evaluate((x) => x.getBoundingClientRect().bottom <= x.closest('.scroll').getBoundingClientRect().bottom);
}

/** Rows stay where they are while the pointer is over them, and take their order once it leaves. */
export async function held(browser, address) {
  const line = await firstLine(address);
  const row = (name, utilization, demand) => ({ ...line.services[0], name, demand, fullest: { locality: 'us/a', utilization, ceiling: 0.8 } });
  const text = `${JSON.stringify({ ...line, services: [row('one', 0.7, 111), row('two', 0.5, 222)] })}\n`;
  await standIn(address, text, async (at, send) => {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    const names = () => page.locator('table.rows tbody th').allInnerTexts();
    await page.goto(at);
    await page.getByRole('link', { name: 'one', exact: true }).hover();
    send({ services: [row('two', 0.9, 333)] });
    await page.getByText('333', { exact: true }).waitFor();
    // The pointer rests, and so do the rows, until it leaves them.
    await page.waitForTimeout(5000);
    assert.deepEqual(await names(), ['one', 'two']);
    await page.getByText('order held while the pointer').waitFor();
    await page.getByRole('heading', { name: 'Services' }).hover();
    for (let i = 0; (await names())[0] !== 'two'; i++) {
      assert.ok(i < 100, `the rows keep an old order: ${await names()}`);
      await page.waitForTimeout(100);
    }
    await page.close();
  });
}

/** So does the matrix on the page of a service. */
export async function steadyService(browser, address) {
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  let attention = [];
  await page.route('**/v1/status?service=*', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ json: { ...(await answer.json()), attention } });
  });
  await page.goto(`${address}#/service/checkout`);
  await page.getByRole('heading', { name: 'Nothing needs attention' }).waitFor();
  // The tiles between them may become a line higher by what they say of the moment.
  const top = () => page.evaluate(() => {
    const at = (x) => document.querySelector(x).getBoundingClientRect();
    return Math.round(at('table.matrix').top - at('.tiles').height);
  });
  await page.locator('table.matrix').waitFor();
  const before = await top();
  attention = Array(12).fill(item);
  let still = 0;
  const moves = setInterval(() => void page.mouse.move(700, 600 + (still++ % 2)).catch(() => undefined), 500);
  await page.getByRole('heading', { name: '12 things need attention' }).waitFor();
  assert.equal(await top(), before);
  clearInterval(moves);
  // What the box has no height for is offered, not cut off.
  attention = attention.slice(0, 4);
  await page.getByRole('button', { name: 'Show all 4' }).click();
  assert.ok(await fits(page));
  await page.close();
}

/** Every screen says whether it is live, and opens without an error in the browser's console. */
export async function connected(browser, address) {
  const page = await browser.newPage();
  const errors = [];
  page.on('console', (m) => m.type() === 'error' && errors.push(m.text()));
  const screens = ['', '#/service/checkout', '#/regions', '#/time', '#/whatif', '#/clients', '#/checkers', '#/replicas'];
  for (const hash of screens) {
    await page.goto('about:blank');
    await page.goto(address + hash);
    await page.getByText('Live', { exact: true }).waitFor();
    await page.locator('main').waitFor();
  }
  assert.deepEqual(errors, []);
  await page.close();
  // What was read before the server went is not of now.
  const left = await standIn(address, '', async (at) => {
    const gone = await browser.newPage();
    await gone.goto(`${at}#/replicas`);
    await gone.getByText('Live', { exact: true }).waitFor();
    return gone;
  });
  await left.getByText('Not connected').waitFor();
  await left.close();
}

/** Few requests open the first screen, and none follow while nobody looks at the page. */
export async function requests(browser, address) {
  const page = await browser.newPage();
  const asked = [];
  page.on('request', (r) => asked.push(r.url()));
  const settled = quiet(page);
  await page.goto(address);
  await page.locator('tbody tr.data').first().waitFor();
  assert.ok(asked.length <= 6, `the first screen took ${asked.length} requests: ${asked.join(' ')}`);
  const first = asked.length;
  await page.goto(`${address}#/time?service=checkout`);
  await page.locator('.scrubber').waitFor();
  await settled(); // an answer that comes late leads to another question
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: true, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  const before = asked.length;
  await page.waitForTimeout(12_000); // each part of this screen asks every 10 s, or follows a stream
  assert.deepEqual(asked.slice(before), [], 'a page that nobody looks at asks');
  const again = page.waitForRequest(/\/v1\/stream/);
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: false, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await again;
  await page.close();
  return first;
}
