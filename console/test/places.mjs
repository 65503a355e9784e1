// What keeps its place, or is found again: focus, scrolled lists, columns, and addresses that name nothing.
import assert from 'node:assert/strict';
import { firstLine, standIn } from './limits.mjs';

/** Ends a hang, as in browser.mjs: simulations of a busy machine take long. */
const patience = 180_000;

/** Returns once a condition of the page holds. */
async function until(page, what, holds) {
  for (let i = 0; !(await holds()); i++) {
    assert.ok(i < 100, typeof what === 'function' ? await what() : what);
    await page.waitForTimeout(100);
  }
}

/** Escape and Cancel close a question without an order, and return the focus to where it was opened. */
export async function escapes(browser, address) {
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  const orders = [];
  page.on('request', (r) => r.method() === 'POST' && !r.url().endsWith('/v1/whatif') && orders.push(r.url()));
  await page.goto(`${address}#/service/checkout`);
  await page.getByLabel('Locality', { exact: true }).selectOption('us-east/b');
  const question = page.locator('form.confirm');
  const closed = async (opener, what) => {
    await question.waitFor({ state: 'detached' });
    await until(page, `${what}: the focus is elsewhere`, () => opener.evaluate((x) => x === document.activeElement));
  };
  const button = page.getByRole('button', { name: 'Drain…', exact: true });
  const escape = () => page.keyboard.press('Escape');
  for (const [what, opener, ready, close] of [
    ['the button', button, question, escape],
    ['the button below a column', page.getByRole('link', { name: 'Drain us-east/b: what would happen' }), question, escape],
    ['a field', button, question, async () => {
      await page.getByLabel('Who you are').fill('me');
      await escape();
    }],
    ['Cancel', button, question, () => page.getByRole('button', { name: 'Cancel' }).click()],
  ]) {
    await opener.click();
    await ready.waitFor();
    await close();
    await closed(opener, what);
    assert.doesNotMatch(page.url(), /act=/);
  }
  // Also while the server simulates: its answer is none any longer.
  let answer;
  await page.route('**/v1/whatif', (route) => (answer = route));
  await button.click();
  await page.getByText('Simulating…').waitFor();
  await escape();
  await closed(button, 'before the answer');
  await answer.continue();
  await page.unrouteAll();
  // A rollback is a question, too.
  await page.goto(`${address}#/time?service=checkout&span=hour`);
  const before = page.getByRole('button', { name: /^After this change/ });
  await before.click();
  await question.waitFor();
  await escape();
  await closed(before, 'a rollback');
  assert.deepEqual(orders, []);
  await page.close();
}

/** Back shows lists, and the page, where they were scrolled to. */
export async function back(browser, address) {
  const line = await firstLine(address);
  line.services = Array.from({ length: 10_000 }, (_, i) => ({ ...line.services[0], name: `service-${String(i).padStart(5, '0')}` }));
  const { clients } = await (await fetch(new URL('../v1/clients', address))).json();
  const many = Array.from({ length: 300 }, (_, i) => ({ ...clients[0], id: `client-${i}` }));
  await standIn(address, `${JSON.stringify(line)}\n`, async (at) => {
    const page = await browser.newPage({ viewport: { width: 1440, height: 700 } });
    await page.route('**/v1/clients', (r) => r.fulfill({ json: { clients: many } }));
    const places = () => page.evaluate(() => [document.querySelector('.tall')?.scrollTop, scrollY]);
    const scroll = (to) => page.evaluate((top) => {
      document.querySelector('.tall').scrollTop = top;
      scrollTo(0, 90);
    }, to);
    const same = (want) => until(page, async () => `the places are ${await places()}, want ${want}`, async () => String(await places()) === String(want));

    await page.goto(at);
    await page.getByRole('link', { name: 'service-00000' }).waitFor();
    await scroll(36_000);
    const row = page.getByRole('link', { name: 'service-01003' });
    await row.waitFor();
    const left = await places();
    assert.ok(left[0] === 36_000 && left[1] > 0, `scrolled to ${left}`);
    await row.click();
    await page.getByRole('heading', { name: 'service-01003' }).waitFor();
    await page.goBack();
    await row.waitFor();
    await same(left);
    // Another visit begins at the top.
    const go = (hash) => page.evaluate((x) => (location.hash = x), hash); // a click in the header would scroll to it
    await go('#/clients');
    await page.getByText('300 of 300').waitFor();
    await until(page, 'a new screen begins at its top', async () => (await places())[0] === 0);
    await scroll(800);
    const seen = await places();
    await go('#/checkers');
    await page.getByRole('heading', { name: 'Checkers', exact: true }).waitFor();
    await page.goBack();
    await page.getByText('300 of 300').waitFor();
    await same(seen);
    await page.goBack();
    await row.waitFor();
    await same(left);
    await page.close();
  });
}

/** An address that names nothing is told, with a link to what there is. */
export async function wrong(browser, address) {
  const page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  for (const [hash, words, link] of [
    ['nonsense', 'No screen is named nonsense.', 'Fleet'],
    ['regoins', 'No screen is named regoins. Did you mean regions?', 'Regions'],
    ['service', 'The address names no service.', 'See all services'],
    ['service/chekout', 'There is no service named “chekout” in the plan.', 'See all services'],
    ['service/checkout?from=us-east%2Fa&to=us-esat%2Fa', 'No locality of this service is named us-esat/a. Did you mean us-east/a?', 'See where clients of this row send'],
    ['time?service=chekout', 'Neither the plan nor the history has a service named “chekout”. Did you mean checkout?', 'See what changed in all services'],
    ['time?at=yesterday', 'The address has a time that can\'t be read: “yesterday”.', 'Leave the time out'],
    ['fleet?find=chekout', 'No service is named like “chekout”.', 'See all services'],
    ['clients?find=nobody', 'No client matches “nobody”.', 'See all clients'],
  ]) {
    await page.goto(`${address}#/${hash}`);
    const told = page.locator('main').getByText(words);
    await told.waitFor();
    await page.locator('main').getByRole('link', { name: link, exact: true }).first().click();
    await told.waitFor({ state: 'detached' });
    assert.notEqual(new URL(page.url()).hash, `#/${hash}`);
  }
  await page.close();
}

/** The columns of a service stay where they are while plans change what their cells say. */
export async function columns(browser, address) {
  const line = await firstLine(address, 'checkout');
  const [first, second] = line.service.localities.map((l) => l.locality);
  const plan = (version, published, target, more) => ({
    ...line, version, service: {
      ...line.service, localities: line.service.localities.map((l) => ({ ...l, ...more })),
      sources: line.service.sources.map((s) => ({ ...s, shares: [first, second].map((locality, i) => ({ locality, published: Math.abs(i - published), target: Math.abs(i - target) })) })),
    },
  });
  const calm = plan('1', 1, 1, { load: 9, utilization: 0.09, capacity: 100, endpoints: 2, healthy: 2, price_ms: 0 });
  const moves = plan('2', 0.125, 0.345, { load: 1234, utilization: 1.03, capacity: 1200, endpoints: 12, healthy: 11, price_ms: 1234 });
  await standIn(address, `${JSON.stringify(calm)}\n`, async (at, send) => {
    for (const width of [1440, 2560]) {
      const page = await browser.newPage({ viewport: { width, height: 900 } });
      await page.goto(`${at}#/service/checkout`);
      const cells = () => page.locator('table.matrix').first().locator('thead tr').first().locator('th').evaluateAll((all) => all.map((x) => Math.round(x.getBoundingClientRect().left)));
      await page.locator('.matrix').first().getByText('100%', { exact: false }).first().waitFor();
      const before = await cells();
      send(moves);
      await page.locator('.matrix tbody small', { hasText: '→' }).first().waitFor();
      assert.deepEqual(await cells(), before, `columns at ${width}`);
      await page.close();
    }
  });
}

/** A drain by an operator does not look like a failure. */
export async function drained(browser, address) {
  const line = await firstLine(address);
  const row = (name, healthy, draining) => ({ ...line.services[0], name, endpoints: 4, healthy, draining });
  const text = `${JSON.stringify({ ...line, status: { ...line.status, attention: [] }, services: [row('fails', 2, 0), row('drains', 2, 2), row('works', 4, 0)] })}\n`;
  await standIn(address, text, async (at) => {
    const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
    await page.goto(at);
    const of = async (name) => {
      const cell = page.getByRole('row', { name: new RegExp(`^${name} `) }).locator('td').first();
      await cell.waitFor();
      return { text: await cell.innerText(), title: await cell.getAttribute('title'), colour: await cell.evaluate((x) => getComputedStyle(x).color) };
    };
    const [fails, drains, works] = [await of('fails'), await of('drains'), await of('works')];
    assert.deepEqual([fails.text, drains.text, works.text], ['2/4', '2/4 drained', '4/4']);
    assert.deepEqual([fails.title, drains.title, works.title], ['2 endpoints are not healthy', '2 endpoints are drained, which is no failure', null]);
    assert.equal(new Set([fails.colour, drains.colour, works.colour]).size, 3);
    await page.close();
  });
}
