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

const fleet = spawn(process.env.FLEET, { stdio: ['pipe', 'pipe', 'inherit'] });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
try {
  const address = await new Promise((resolve, reject) => {
    createInterface(fleet.stdout).once('line', resolve);
    fleet.once('exit', () => reject(new Error('the fleet ended')));
  });

  const sizes = [[1440, 900], [390, 844], [2560, 1440]];
  for (const scheme of ['light', 'dark']) {
    for (const [width, height] of sizes) {
      // The policy of the page forbids what axe does to put itself in; what the
      // policy forbids is seen below, in a page that it binds.
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
      await page.goto(address);
      await page.getByRole('link', { name: 'checkout', exact: true }).waitFor();
      await page.locator('.chip:not(.heat-0)').waitFor(); // clients have reported
      await shot('fleet');
      await page.getByRole('link', { name: 'checkout', exact: true }).click();
      await page.getByRole('link', { name: /us-east\/a to us-east\/a: .*Why/ }).click();
      await page.getByRole('heading', { name: /Why does us-east\/a send/ }).waitFor();
      await page.locator('.answer').waitFor();
      await page.locator('.chart canvas').nth(2).waitFor(); // two samples, 5 s apart
      await shot('service');
      await page.getByRole('link', { name: 'What changed?' }).click();
      await page.getByRole('heading', { name: /What changed at/ }).waitFor();
      await page.locator('.moves').first().waitFor();
      await page.locator('.chart canvas').nth(2).waitFor();
      await shot('time');
      await page.getByRole('link', { name: 'What if', exact: true }).click();
      await page.getByLabel('Lose regions or zones').fill('us-east/b');
      await page.getByRole('button', { name: 'Play it through' }).click();
      await page.getByRole('heading', { name: /would change/ }).waitFor();
      await shot('whatif');
      await page.getByRole('link', { name: 'Fleet' }).click();
      await page.getByRole('link', { name: /refuse what they are sent/ }).click();
      await page.getByRole('heading', { name: 'Clients' }).waitFor();
      await page.getByText('onerror').first().waitFor();
      await shot('clients');
      await context.close();
    }
  }

  // The same screens under the page's own policy: nothing is refused, nothing of
  // what strangers name themselves runs, and nothing is asked of other hosts.
  const page = await browser.newPage();
  const errors = [];
  page.on('console', (m) => m.type() === 'error' && errors.push(m.text()));
  page.on('pageerror', (e) => errors.push(String(e)));
  page.on('request', (r) => { if (!r.url().startsWith(new URL(address).origin)) errors.push(`asked ${r.url()}`); });
  for (const path of ['', '#/service/checkout', '#/clients', '#/whatif', '#/time', '#/time?service=checkout&span=day', `#/service/${encodeURIComponent('<img src=x onerror=alert(1)>')}`]) {
    await page.goto(address + path);
    await page.waitForLoadState('load');
    await page.locator('main .card').first().waitFor();
    assert.doesNotMatch(await page.title(), /owned/);
    assert.equal(await page.locator('main img').count(), 0);
  }
  const answer = await page.goto(`${address}?again`);
  assert.match(answer.headers()['content-security-policy'], /default-src 'none'/);
  assert.doesNotMatch(answer.headers()['content-security-policy'], /unsafe/);
  assert.deepEqual(await page.context().cookies(), []);
  assert.deepEqual(errors, []);

  // By keyboard alone from the list to a reason.
  await page.goto(address);
  await page.getByRole('link', { name: 'checkout', exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: /eu-west\/a to eu-west\/a/ }).focus();
  await page.keyboard.press('Enter');
  await page.locator('.answer').waitFor();
  console.log('the console does its job');
} finally {
  await browser.close();
  fleet.stdin.end();
  await new Promise((resolve) => (fleet.exitCode === null ? fleet.once('exit', resolve) : resolve()));
}
