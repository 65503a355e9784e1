// Drives the console in a real browser against a real server with a real fleet.
// `npm run browser` runs it; CHROMIUM names the browser, FLEET the program of
// test/console. Screenshots go to console/screenshots.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const out = new URL('../screenshots/', import.meta.url).pathname;
mkdirSync(out, { recursive: true });
const markup = '<img src=x onerror="document.title=\'owned\'"><script>document.title=\'owned\'</script>';

const fleet = spawn(process.env.FLEET, { stdio: ['pipe', 'pipe', 'inherit'] });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });

/** Looks at every screen at one size: a screenshot, axe, and nothing that scrolls sideways. */
async function look(address, scheme, width, height) {
  // The policy of the page forbids what axe does to put itself in; what the
  // policy forbids is seen in the other pages, which it binds.
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, bypassCSP: true });
  const page = await context.newPage();
  const shot = async (name) => {
    await page.screenshot({ path: `${out}${name}-${width}x${height}-${scheme}.png`, fullPage: name !== 'fleet' });
    await page.evaluate(axe);
    const { violations } = await page.evaluate(() => globalThis.axe.run());
    assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ').slice(0, 300)}`), [], `axe on ${name} ${width} ${scheme}`);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(wide, 0, `${name} scrolls sideways at ${width}`);
  };
  const open = async (hash, ready) => {
    await page.goto(`${address}#/${hash}`);
    await ready.waitFor();
  };
  await open('fleet', page.locator('.chip:not(.heat-0)').first()); // clients have reported
  await shot('fleet');
  await open('service/checkout?from=us-east%2Fa&to=us-east%2Fa', page.locator('.answer').first());
  await page.locator('.chart canvas').nth(2).waitFor(); // two samples, 5 s apart
  await page.getByLabel('Locality', { exact: true }).selectOption('us-east/b');
  await page.getByRole('button', { name: 'Drain…', exact: true }).click();
  await page.getByRole('button', { name: 'Drain us-east/b now' }).waitFor();
  await shot('service');
  await open('time?service=checkout', page.locator('.moves').first());
  await page.locator('.chart canvas').nth(2).waitFor();
  await shot('time');
  await open('regions', page.getByRole('link', { name: /^us-east to us-east:/ }));
  await shot('regions');
  await open('whatif?lose=us-east%2Fb', page.getByRole('button', { name: 'Play it through' }));
  await page.getByRole('button', { name: 'Play it through' }).click();
  await page.getByRole('heading', { name: /would change/ }).waitFor();
  await shot('whatif');
  await open('clients', page.getByText('onerror').first());
  await shot('clients');
  await context.close();
}

/** A page that its own policy binds; errors collects whatever goes wrong in it. */
async function bound(address, errors) {
  const page = await browser.newPage();
  page.on('console', (m) => m.type() === 'error' && !/status of (404|409|412)/.test(m.text()) && errors.push(m.text()));
  page.on('pageerror', (e) => errors.push(String(e)));
  page.on('request', (r) => {
    if (!r.url().startsWith(new URL(address).origin)) errors.push(`asked ${r.url()}`);
  });
  return page;
}

/** Returns once the page shows a text. */
async function shows(page, text) {
  for (let i = 0; i < 150; i++) {
    if (text.test(await page.locator('main').innerText())) return;
    await page.waitForTimeout(200);
  }
  throw new Error(`the page does not show ${text}`);
}

/** The five questions, from the first page, in three clicks at most. */
async function questions(address, page) {
  let clicks = 0;
  const click = async (x) => {
    clicks++;
    await x.click();
  };
  const ask = async (question, answer) => {
    await page.goto(address);
    await page.locator('.chip:not(.heat-0)').first().waitFor(); // clients have reported
    clicks = 0;
    await answer().catch(async (e) => {
      throw new Error(`${question}\n${await page.locator('main').innerText()}\n${e}`);
    });
    assert.ok(clicks <= 3, `${question} took ${clicks} clicks`);
    console.log(`${question} ${clicks} clicks`);
  };
  await ask('Why does eu-west/a get its share?', async () => {
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    await click(page.getByRole('link', { name: /us-east\/a to eu-west\/a: .*Why/ }));
    await page.getByRole('heading', { name: /Why does us-east\/a send [\d.<]+ ?[\d.]*% to eu-west\/a\?/ }).waitFor();
    assert.match(await page.locator('.answer').first().innerText(), /requests\/s/);
  });
  await ask('What changed at a moment?', async () => {
    await click(page.getByRole('link', { name: 'Time', exact: true }));
    await page.locator('.moves').first().waitFor();
    const moment = page.getByLabel('Moment, in your time zone');
    const now = await moment.inputValue();
    clicks++; // into the field
    await moment.fill(now.slice(0, 17) + '00');
    await moment.blur();
    await page.waitForURL(/at=/);
    await shows(page, /Version \d+, .*changed; a client locality moved|The history begins later/s);
  });
  await ask('May I drain us-east/b?', async () => {
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    clicks++; // the choice
    await page.getByLabel('Locality', { exact: true }).selectOption('us-east/b');
    await click(page.getByRole('button', { name: 'Drain…', exact: true }));
    await page.getByRole('heading', { name: /1 service would change/ }).waitFor();
    await page.getByRole('columnheader', { name: 'us-east/b' }).last().waitFor();
  });
  await ask('Who does not report?', async () => {
    await click(page.getByRole('link', { name: 'Clients', exact: true }));
    await shows(page, /silent-1\s+batch\s+us-east\/a\s+reports no load/);
  });
  await ask('Which client ignores its weights?', async () => {
    const item = page.getByRole('link', { name: /clients in eu-west\/c are off their shares/ });
    const all = page.getByRole('button', { name: /^Show all/ });
    // Three windows in a row make a deviation; a machine that is too busy for the fleet needs more.
    for (let i = 0; i < 100 && !(await item.isVisible()) && !(await all.isVisible()); i++) await page.waitForTimeout(1000);
    if (!(await item.isVisible())) await click(all);
    await click(item);
    await page.getByText('Clients deviate').waitFor();
    await click(page.getByRole('link', { name: 'legacy', exact: true }));
    await shows(page, /stubborn-1\s+legacy\s+eu-west\/c/);
  });
}

/** Drains, is refused, pauses and resumes; a stale page is told. */
async function act(address, page, other) {
  const drain = async (p) => {
    await p.goto(`${address}#/service/checkout`);
    await p.getByLabel('Locality', { exact: true }).selectOption('us-east/b');
    await p.getByRole('button', { name: 'Drain…', exact: true }).click();
    await p.getByRole('button', { name: 'Drain us-east/b now' }).waitFor();
    await p.getByLabel('Reason, for the history').fill(markup);
  };
  await drain(page);
  await drain(other);
  await page.getByRole('button', { name: 'Drain us-east/b now' }).click();
  // A fleet that carried the loss of a zone no longer would: that is refused first.
  const forced = page.getByLabel('Drain nevertheless');
  const done = page.getByText(/Drain: 2 endpoints in us-east\/b, in force with plan/);
  await forced.or(done).waitFor();
  if (await forced.isVisible()) {
    await forced.check();
    await page.getByRole('button', { name: 'Drain us-east/b now' }).click();
  }
  await done.waitFor();
  await other.getByText('The service was changed meanwhile.').waitFor();
  assert.ok(await other.getByRole('button', { name: 'Drain us-east/b now' }).isDisabled());
  await page.getByRole('button', { name: 'Take the drain back…' }).click();
  await page.getByRole('button', { name: 'Take the drain back us-east/b now' }).click();
  await page.getByText(/Take the drain back: 2 endpoints/).waitFor();
  await page.getByRole('button', { name: 'Pause…' }).click();
  await page.getByLabel('Who you are').fill(markup);
  await page.getByRole('button', { name: 'Pause checkout now' }).click();
  await page.getByText(/Weights are paused/).waitFor();
  await page.getByRole('button', { name: 'Resume…' }).click();
  await page.getByRole('button', { name: 'Resume checkout now' }).click();
  await page.getByText(/Weights are paused/).waitFor({ state: 'detached' });
}

/** Names of strangers are text, wherever they come from. */
async function inject(address, page) {
  const put = async (name, locality) => {
    const body = JSON.stringify({ localities: [{ locality, max_rate: 10, endpoints: ['127.0.0.1:9'] }] });
    return (await fetch(new URL(`../v1/services/${encodeURIComponent(name)}`, address), { method: 'PUT', body })).status;
  };
  assert.equal(await put('<b>x', 'us-east/a'), 400); // services can't have such names; localities can
  assert.equal(await put('odd:name|x', '<i>r/<u>z'), 200);
  for (const path of [
    '', '#/service/checkout', '#/service/checkout?from=%3Cimg%20src%3Dx%3E&to=%3Cb%3E', `#/service/${encodeURIComponent('<b>x')}`, `#/service/${encodeURIComponent('odd:name|x')}`, '#/clients',
    `#/clients?find=${encodeURIComponent('<img')}`, '#/whatif', '#/whatif?service=%3Cb%3Ex&lose=%3Ci%3E', '#/time', '#/time?service=checkout&span=day',
    `#/time?service=${encodeURIComponent('<b>x')}&at=%3Cb%3E`, '#/regions', '#/regions?from=us-east', `#/regions?from=${encodeURIComponent('<b>')}`,
    `#/service/${encodeURIComponent('<img src=x onerror=alert(1)>')}`,
  ]) {
    await page.goto(address + path);
    await page.waitForLoadState('load');
    await page.locator('main .card').first().waitFor();
    await page.waitForTimeout(250);
    assert.doesNotMatch(await page.title(), /owned/);
    assert.equal(await page.locator('main :is(img, script, b > b, i, u)').count(), 0, `${path} has elements of strangers`);
  }
  await page.goto(`${address}#/clients`);
  await page.getByText(markup).first().waitFor(); // it is shown, as text
  await page.goto(`${address}#/time`);
  await page.getByLabel('Moment, in your time zone').waitFor();
}

try {
  const address = await new Promise((resolve, reject) => {
    createInterface(fleet.stdout).once('line', resolve);
    fleet.once('exit', () => reject(new Error('the fleet ended')));
  });
  const begin = Date.now();
  const said = (text) => console.log(`${text} (${((Date.now() - begin) / 1000).toFixed(0)} s)`);
  const errors = [];
  const page = await bound(address, errors);
  // SCREENS=no leaves them out, for those who work on the rest.
  for (const scheme of process.env.SCREENS === 'no' ? [] : ['light', 'dark']) {
    for (const [width, height] of [[1440, 900], [390, 844], [2560, 1440]]) await look(address, scheme, width, height);
  }
  said('every screen at three sizes, light and dark, without violations');
  await questions(address, page);
  await act(address, page, await bound(address, errors));
  said('drain, drain back, pause, resume, and a stale page that is refused');
  await inject(address, page);

  const answer = await page.goto(`${address}?again`);
  assert.match(answer.headers()['content-security-policy'], /default-src 'none'/);
  assert.doesNotMatch(answer.headers()['content-security-policy'], /unsafe/);
  assert.deepEqual(await page.context().cookies(), []);
  assert.deepEqual(errors, []);
  said('markup in names is text, the policy holds, nothing is asked of others');

  // By keyboard alone from the list to a reason.
  await page.goto(address);
  await page.getByRole('link', { name: 'checkout', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: /eu-west\/a to eu-west\/a/ }).focus();
  await page.keyboard.press('Enter');
  await page.locator('.answer').first().waitFor();
  said('the console does its job');
} finally {
  await browser.close();
  fleet.stdin.end();
  await new Promise((resolve) => (fleet.exitCode === null ? fleet.once('exit', resolve) : resolve()));
}
