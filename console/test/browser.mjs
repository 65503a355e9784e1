// Drives the console in a real browser against real servers with real fleets.
// `npm run browser` runs it; CHROMIUM names the browser, FLEET the program of
// test/console. Screenshots go to console/screenshots; PICTURES=yes writes those of the
// documentation anew.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';
import { connected, held, loading, requests, rows, steady, steadyService } from './limits.mjs';
import { back, columns, drained, escapes, wrong } from './places.mjs';
import { access, base, persist, replicas } from './servers.mjs';
import { earlier } from './steps.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const out = new URL('../screenshots/', import.meta.url).pathname;
mkdirSync(out, { recursive: true });
const pictures = new URL('../../docs/how-to/console/', import.meta.url).pathname;
const markup = '<img src=x onerror="document.title=\'owned\'"><script>document.title=\'owned\'</script>';

const fleet = spawn(process.env.FLEET, { stdio: ['pipe', 'pipe', 'inherit'] });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });

/** Ends a hang: a machine that is too busy for the fleet takes long until its checkers agree. */
const patience = 180_000;

/** The order to drain us-east/b, in the words after a yes and after a no. */
const drainOrder = { name: /^Drain us-east\/b (now|despite this)$/ };

/** The address of the last whole minute, of which the fleet has changes. */
function lastMinute() {
  const to = Math.floor(Date.now() / 60_000) * 60_000;
  return `time?service=checkout&span=hour&from=${new Date(to - 60_000).toISOString()}&to=${new Date(to).toISOString()}`;
}

/** The address of the time from behind the first change until the newest, so that something differs also of a fleet that is young, or calm. */
async function allChanges(address) {
  let marks = [];
  for (let i = 0; marks.length < 2; i++) {
    ({ marks } = await (await fetch(new URL('../v1/history?brief=true&service=checkout', address))).json());
    assert.ok(i < 900, `checkout changed ${marks.length} times`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  const [from, to] = [marks.at(-1), marks[0]].map((m) => new Date(Date.parse(m.made) + 1).toISOString());
  return `time?service=checkout&span=hour&from=${from}&to=${to}`;
}

/** Every screen: its address or what gives it, what shows that it is ready, and what is done on it first. */
const screens = [
  // Clients of all services have reported. Small screens don't show the bar.
  ['fleet', '', (p) => p.locator('tr', { hasText: 'search', has: p.locator('rect:is(.fill-2, .fill-3, .fill-4)') }).first()],
  [
    'service', 'service/checkout?from=us-east%2Fa&to=us-east%2Fa', (p) => p.locator('.answer').first(),
    async (p) => {
      await p.locator('.chart canvas').nth(2).waitFor(); // two samples, 5 s apart
      await p.getByRole('link', { name: 'Drain us-east/b: what would happen' }).click();
      await p.getByRole('button', drainOrder).waitFor();
      await p.getByText('Clients of this service').click();
      await p.getByRole('link', { name: 'stubborn-1', exact: true }).waitFor();
    },
  ],
  [
    'time', 'time?service=checkout&span=hour', (p) => p.locator('.moves').first(),
    async (p) => {
      await p.locator('.chart canvas').nth(2).waitFor();
      await earlier(p);
      await p.locator('.then').waitFor();
      await p.getByRole('button', { name: /^Before this change/ }).click();
      await p.getByText(/^(Yes|No|Not certain)[:,]/).waitFor();
    },
  ],
  ['span', allChanges, (p) => p.locator('.answer.net'), (p) => p.locator('.chart canvas').nth(2).waitFor()],
  ['regions', 'regions', (p) => p.getByRole('link', { name: /^us-east to us-east:/ })],
  [
    'whatif', 'whatif?lose=us-east%2Fb', (p) => p.getByText(/^(Yes|No|Not certain)[:,]/),
  ],
  ['clients', 'clients', (p) => p.getByText('onerror').first()],
  ['checkers', 'checkers', (p) => p.getByText(/Probes from us-east\/b to/).first()],
];

/** Looks at a screen as it is: a screenshot, axe, and nothing that scrolls sideways. */
async function look(page, name, scheme, width, height) {
  await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: `${out}${name}-${width}x${height}-${scheme}.png`, fullPage: width < 2000 });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ').slice(0, 300)}`), [], `axe on ${name} ${width} ${scheme}`);
  await narrow(page, name, width);
}

/** Nothing of a screen is wider than the window. */
async function narrow(page, name, width) {
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0, `${name} scrolls sideways at ${width}`);
}

/** Looks at every screen at one size. The page is made once: colours follow the scheme. */
async function lookAtAll(address, group, width, height) {
  // The policy of the page forbids what axe does to put itself in; what the
  // policy forbids is seen in the other pages, which it binds.
  const context = await browser.newContext({ viewport: { width, height }, bypassCSP: true });
  context.setDefaultTimeout(patience);
  const page = await context.newPage();
  for (const [name, hash, ready, first] of [...screens, ['replicas', 'replicas', (p) => p.getByText(/more replicas? may fail/)]]) {
    await page.goto(`${name === 'replicas' ? group : address}#/${typeof hash === 'function' ? await hash(address) : hash}`);
    await ready(page).waitFor();
    if (first) await first(page);
    for (const scheme of process.env.QUICK === 'yes' ? ['light'] : ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      await page.waitForTimeout(150); // charts are drawn anew
      await look(page, name, scheme, width, height);
    }
    if (width > 360 && width < 400) {
      for (const small of [360, 320]) {
        await page.setViewportSize({ width: small, height });
        await narrow(page, name, small);
      }
      await page.setViewportSize({ width, height });
    }
  }
  await context.close();
}

/** The pictures of the documentation: the fleet without names that hold markup. */
async function takePictures(address) {
  mkdirSync(pictures, { recursive: true });
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 }, colorScheme: 'light' });
  await page.goto(address);
  await page.waitForTimeout(150_000); // until charts and the scrubber show something, and a whole minute its changes
  for (const [name, hash, ready, first] of screens.filter(([n]) => ['fleet', 'service', 'span', 'checkers'].includes(n))) {
    await page.goto(`${address}#/${name === 'span' ? lastMinute() : hash}`);
    await ready(page).waitFor();
    if (first) await first(page);
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: `${pictures}${name === 'span' ? 'time' : name}.png` });
  }
  await page.close();
}

/** A page that its own policy binds; errors collects whatever goes wrong in it. */
async function bound(address, errors) {
  const page = await browser.newPage();
  page.setDefaultTimeout(patience);
  // A server that answers another question first says so (503), and the page asks again.
  const expected = (m) => (/status of (400|404|409|412)/.test(m.text()) && !/\/v1\/verdicts/.test(m.location().url)) || (/status of 503/.test(m.text()) && /\/v1\/(whatif|plan)$/.test(m.location().url));
  page.on('console', (m) => m.type() === 'error' && !expected(m) && errors.push(`${m.text()} ${m.location().url}`));
  page.on('pageerror', (e) => errors.push(String(e)));
  page.on('request', (r) => {
    if (!r.url().startsWith(new URL(address).origin)) errors.push(`asked ${r.url()}`);
  });
  return page;
}

/** Returns once the page shows a text. */
async function shows(page, text) {
  for (let i = 0; i < 900; i++) {
    if (text.test(await page.locator('main').innerText())) return;
    await page.waitForTimeout(200);
  }
  throw new Error(`the page does not show ${text}`);
}

/** The span that the address of Time names, as the API has it. */
async function spanOf(address, page) {
  await page.waitForURL(/from=.*to=/);
  const ends = new URLSearchParams(new URL(page.url()).hash.split('?')[1]);
  const ask = new URLSearchParams({ from: ends.get('from'), to: ends.get('to') });
  return (await fetch(new URL(`../v1/history/span?${ask}`, address))).json();
}

/** Waits until Time shows the largest change of the span in the address, and returns it. */
async function largest(address, page) {
  // What still goes on may have a larger change a moment later.
  for (let i = 0; ; i++) {
    const { changes, count } = await spanOf(address, page);
    assert.ok(count > 0, `nothing changed: ${page.url()}`);
    const single = page.locator('.answer.single'); // it is folded where there are many
    const text = (await single.count()) > 0 ? await single.textContent() : '';
    const rows = await page.locator('.changes tbody tr').count();
    if (new RegExp(`[Vv]ersion ${changes[0].version},`).test(text) && rows === (count > 1 ? changes.length : 0)) return changes[0];
    assert.ok(i < 200, `version ${changes[0].version} of ${count} is the largest: ${text}`);
    await page.waitForTimeout(200);
  }
}

/** Shows the single changes of a span, which are folded where there are many. */
async function unfold(page) {
  if (await page.locator('details.singles:not([open])').count()) await page.locator('.singles > summary').click();
  await page.locator('.changes').waitFor();
}

/** The cells of the table that tells what differs after a span from before it. */
const netRows = (page) => page.locator('table.net tbody tr').evaluateAll((rows) => rows.map((r) => [...r.children].map((x) => x.innerText.trim())));

/**
 * What many changes come to: the shares before and after are those that stood at the two moments, the largest
 * difference comes first, and the single changes are beneath it.
 */
async function whatDiffers(address, page) {
  const ask = async (path) => (await fetch(new URL(`../v1/${path}`, address))).json();
  const { marks } = await ask('history?brief=true&service=checkout');
  assert.ok(marks.length > 6, `checkout changed ${marks.length} times`);
  // From behind the oldest change on, so that what stood before is known.
  const [from, to] = [marks.at(-1), marks[0]].map((m) => new Date(Date.parse(m.made) + 1).toISOString());
  await page.goto(`${address}#/time?service=checkout&from=${from}&to=${to}`);
  // Changes of health come first: a busy machine makes some.
  await page.locator('.answer.net', { hasText: new RegExp(`(^|[.:] )${marks.length - 1} changes`) }).waitFor();
  const rows = await netRows(page);
  assert.ok(rows.length > 0, await page.locator('main').innerText());
  const [before, after] = [await ask(`history/moment?service=checkout&at=${from}`), await ask(`history/moment?service=checkout&at=${to}`)];
  const share = ({ shares }, source, locality) => {
    const row = shares.sources.find((s) => s.source === source);
    return row && 100 * (row.shares[shares.localities.indexOf(locality)] ?? 0);
  };
  for (const [source, locality, was, is] of rows) {
    const [x, y] = [share(before, source, locality), share(after, source, locality)];
    const near = (text, value) => (value === undefined ? /not there|gone/.test(text) : Math.abs(Number(text.replace(/^< /, '').slice(0, -1)) - value) < 0.6);
    assert.ok(near(was, x) && (is === 'unchanged' ? Math.abs(x - y) < 0.1 : near(is, y)), `${source} to ${locality}: ${was} ${is}, want ${x} ${y}`);
  }
  const sizes = rows.map((r) => Math.abs(Number(r[5].replace('−', '-') || 0)));
  assert.deepEqual(sizes, [...sizes].sort((a, b) => b - a), 'the largest difference in requests first');
  assert.equal(await page.locator('details.singles[open]').count(), 0); // they are many
  await unfold(page);
  await page.locator('.answer.single').waitFor();
  await backAndForth(address, page);
}

/** A share that went back to what it was is told as such: what the server answers is made here, for no fleet does it to the point. */
async function backAndForth(address, page) {
  const { version } = await (await fetch(new URL('../v1/history?brief=true', address))).json();
  const move = { source: 'us-east/a', locality: 'eu-west/b', before: 0.2, after: 0.2, low: 0.12, high: 0.31, changes: 14, rate: 0 };
  const reason = { made: '2026-03-01T10:03:20Z', trigger: 'tick', text: 'eu-west/b is full' };
  const answer = { version, from: '2026-03-01T10:03:00Z', to: '2026-03-01T10:04:00Z', count: 14, counted: 14, since: '2026-03-01T10:03:02Z', event_count: 0, events: [], service_count: 1 };
  const marks = Array.from({ length: 14 }, (_, i) => ({ version: i + 1, previous: i, made: `2026-03-01T10:03:${String(2 + 4 * i).padStart(2, '0')}Z`, trigger: 'tick', services: 1, moved: 0.1, most: 'checkout' }));
  await page.route('**/v1/history/span?*', (r) => r.fulfill({ json: { ...answer, changes: marks } }));
  await page.route('**/v1/history/net?*', (r) => r.fulfill({ json: { ...answer, services: [{ service: 'checkout', changes: 14, rate: 0, reasons: [reason], move_count: 1, moves: [move] }] } }));
  await page.route('**/v1/history/moment?*', (r) => r.fulfill({ json: { version, at: answer.from, change: marks[0], number: 1, count: 14 } }));
  await page.goto(`${address}#/time?service=checkout&from=2026-03-01T10:03:00.000Z&to=2026-03-01T10:04:00.000Z`);
  await page.getByText('14 changes, back and forth. After the minute, all shares are what they were before it.').waitFor();
  assert.deepEqual(await netRows(page), [['us-east/a', 'eu-west/b', '20%', 'unchanged', '', '', '14 changes between 12% and 31%']]);
  await page.getByText('a regular adjustment: eu-west/b is full').waitFor();
  await page.unrouteAll();
}

/** Zones keep their places while the pointer is over them, and an old simulation is told of once: what the server answers is made here. */
async function zonesRest(address, page) {
  const zone = (name, failing) => ({ zone: name, serves: 10, loss: { services: 3, failing, alone: 0, at_limit: 0, worst: [] } });
  const answers = [[zone('us/a', 2), zone('us/b', 0)], [zone('us/a', 0), zone('us/b', 2)]];
  let asked = 0;
  await page.route('**/v1/flows*', (r) => r.fulfill({ json: { version: '1', places: [], flows: [], zones: answers[Math.min(asked++, 1)], loss_age_seconds: 4, loss_outdated: true } }));
  await page.goto(`${address}#/regions`);
  const verdicts = () => page.locator('.losses tbody tr').evaluateAll((rows) => rows.map((r) => `${r.cells[0].innerText.trim()} ${r.cells[1].innerText.split(/\s/)[0]}`));
  await page.getByText('has changed by more than a tenth').waitFor();
  assert.deepEqual(await verdicts(), ['us/a no', 'us/b yes']);
  assert.doesNotMatch(await page.locator('.losses').innerText(), /old/);
  await page.locator('.losses tbody').hover();
  await page.locator('.losses tr', { hasText: /us\/b\s*no/ }).waitFor(); // the second answer
  assert.deepEqual(await verdicts(), ['us/a yes', 'us/b no']);
  await page.locator('h1').hover();
  await page.locator('.losses tbody tr:first-child', { hasText: 'us/b' }).waitFor();
  assert.deepEqual(await verdicts(), ['us/b no', 'us/a yes']);
  await page.unrouteAll();
}

/** What if marks capacities that nobody declared, and tells what the marks mean: what the server answers is made here. */
async function capacitiesAreMarked(address, page) {
  const flat = (x) => ({ before: x, first: x, settled: x });
  const site = (locality, capacity_basis) => ({ locality, utilization: { before: 0.4, first: 0.5, settled: 0.6 }, ceiling: 0.8, declared: capacity_basis !== 'assumed', capacity_basis });
  const service = { service: 'x', change: 'changed', drop: flat(0), latency_ms: flat(5), moved: 0.1, sources: [], localities: [site('us/a', 'declared'), site('us/b', 'estimated'), site('us/c', 'assumed')] };
  await page.route('**/v1/whatif', (r) => r.fulfill({ json: { version: '1', settled: true, ticks: 2, same: 0, latency_ms: flat(5), shed: flat(0), moved: 0.1, services: [service] } }));
  await page.goto(`${address}#/whatif?drain=us%2Fd`);
  await page.locator('.verdict').waitFor();
  const [cells] = await page.locator('.outcomes .matrix tbody tr').evaluateAll((rows) => rows.map((r) => [...r.children].map((x) => x.innerText.trim())));
  assert.deepEqual(cells, ['Utilization', '40% → 60%', '40% → ~60%', '40% → ?60%']);
  for (const meaning of ['~ capacity estimated', '? capacity neither declared nor estimated']) await page.getByText(meaning).waitFor();
  await page.unrouteAll();
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
    await page.locator('.meter').first().waitFor(); // clients have reported
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
    const why = page.getByRole('heading', { name: /Why does us-east\/a send [\d.<]+ ?[\d.]*% to eu-west\/a\?/ });
    await why.waitFor();
    // The answer comes into sight, and the focus to it.
    for (let i = 0; ; i++) {
      const box = await why.boundingBox();
      if (box && box.y > -1 && box.y < 600 && (await why.evaluate((x) => x === document.activeElement))) break;
      assert.ok(i < 50, `the answer stands at ${box?.y}`);
      await page.waitForTimeout(100);
    }
    assert.match(await page.locator('.answer').first().innerText(), /requests\/s/);
    // Each says of which moment it is.
    await shows(page, /As decided at \d\d:\d\d:\d\d \(.* UTC\) with plan \d+/);
    await shows(page, /Samples until \d\d:\d\d:\d\d, one every 5 s/);
    await shows(page, /Demand from here\s+[\d.k]+ req\/s, by \d+ reporting clients?; the newest report was \d+ (s|min) old then/);
    // The rule and the costs stand beside the share.
    await shows(page, /Requests go to the localities of the lowest cost.*(all cost about|has the lowest|gets all|at costs from|of the last decision)/s);
  });
  await ask('What changed at a moment?', async () => {
    await click(page.getByRole('link', { name: 'Time', exact: true }));
    await page.locator('.moves').first().waitFor();
    // A young server opens on the hour that has data.
    assert.equal(await page.getByRole('link', { name: 'The last hour' }).getAttribute('aria-current'), 'true');
    // The tallest bar: its largest change made it so. A bar that comes meanwhile moves the others.
    for (let i = 0; ; i++) {
      const tallest = await page.locator('.scrubber > svg rect[class^=bar-]').evaluateAll((all) => {
        const bars = all.map((x, i) => ({ i, height: x.height.baseVal.value }));
        return bars.slice(0, -1).reduce((a, b) => (b.height > a.height ? b : a), bars[0]).i;
      });
      await click(page.locator('.scrubber > svg rect[class^=bar-]').nth(tallest));
      if ((await spanOf(address, page)).count > 0) break;
      assert.ok(i < 3, 'nothing changed in the tallest bar');
      clicks--;
    }
    await largest(address, page);
  });
  await ask('What changed in a minute, and after an event?', async () => {
    const { marks } = await (await fetch(new URL('../v1/history?brief=true', address))).json();
    const change = marks.reduce((a, b) => (b.moved > a.moved ? b : a));
    const event = new Date(Date.parse(change.made) - 2000).toISOString();
    const body = JSON.stringify({ text: 'an event', at: event });
    assert.equal((await fetch(new URL('../v1/marks', address), { method: 'POST', body })).status, 200);
    await click(page.getByRole('link', { name: 'Time', exact: true }));
    await click(page.getByRole('button', { name: /an event$/ }));
    const shown = await largest(address, page);
    // The event has its effect later: what stood at its moment is another change.
    const { change: stood } = await (await fetch(new URL(`../v1/history/moment?at=${event}`, address))).json();
    assert.notEqual(shown.version, stood?.version);
    const minute = await page.evaluate((at) => {
      const d = new Date(at);
      return new Date(d.getTime() - d.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
    }, change.made);
    const field = page.getByLabel('Minute, in your time zone');
    assert.match(await field.inputValue(), /^\d{4}-\d\d-\d\d \d\d:\d\d$/); // in every language of the browser
    await field.fill('2:03 PM');
    await field.press('Enter');
    await page.getByText(/^Write the minute as/).waitFor();
    // A minute to come has no answer yet, and seconds count.
    await field.fill('2096-01-02 14:03');
    await field.press('Enter');
    await page.getByText('This minute is still to come.').waitFor();
    await field.fill('2026-01-02 14:03:30');
    await field.press('Enter');
    await page.waitForURL(/at=2026-01-0\d/);
    assert.match(await field.inputValue(), / 14:03:30$/);
    await field.fill(minute.replace('T', ' '));
    await field.press('Enter');
    await page.waitForURL((url) => new URLSearchParams(url.hash.split('?')[1]).get('to')?.endsWith(':00.000Z'));
    await largest(address, page);
    // Another change of the minute is a click away, and the list stays.
    const others = page.locator('.changes tbody a');
    if ((await others.count()) > 1) {
      await unfold(page);
      const made = await others.nth(1).innerText(); // the last one may leave the list while the minute goes on
      await others.filter({ hasText: made }).first().click(); // the list may be in another order by now
      await page.locator('.changes tr.chosen a[aria-current]').waitFor();
      await page.locator('.answer.single', { hasText: made }).first().waitFor();
    }
  });
  await ask('May I drain us-east/b?', async () => {
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    await click(page.getByRole('link', { name: 'Drain us-east/b: what would happen' }));
    await page.getByRole('heading', { name: 'May us-east/b of checkout be drained?' }).waitFor();
    await page.getByText(/^(Yes|No)[:,] /).waitFor(); // with the figures under it
    await shows(page, /1 service would change.*Utilization.* → /s);
    await page.getByRole('columnheader', { name: 'us-east/b' }).last().waitFor();
  });
  await ask('Would all services carry the loss of us-east/b?', async () => {
    await click(page.getByRole('navigation').getByRole('link', { name: 'Regions' }));
    await click(page.getByRole('link', { name: 'us-east/b', exact: true }));
    await page.getByRole('heading', { name: 'Would the fleet carry the loss of us-east/b?' }).waitFor();
    await page.getByText(/^(Yes|No)[:,] /).waitFor();
  });
  await ask('May us-east/b be drained, for all services?', async () => {
    await click(page.getByRole('navigation').getByRole('link', { name: 'Regions' }));
    await click(page.getByRole('link', { name: 'May us-east/b be drained?' }));
    await page.getByRole('heading', { name: 'May us-east/b be drained, for all services?' }).waitFor();
    await page.getByText(/^(Yes|No|Not certain)[:,] /).waitFor();
    // From there to the order, which shows what it would do and asks.
    await click(page.locator('.outcomes').getByRole('link', { name: 'checkout', exact: true }));
    await page.getByRole('button', drainOrder).waitFor();
  });
  await ask('Who does not report?', async () => {
    await click(page.getByRole('link', { name: 'Clients', exact: true }));
    await shows(page, /silent-1\s+reports no load\s+subscribes to checkout: [^\t\n]*give it a load report stream\s+batch\s+us-east\/a/);
  });
  await ask('Who does not report? By the number on the first page', async () => {
    await click(page.getByRole('link', { name: 'Report load' }));
    await shows(page, /reports no load: [1-9].*silent-1\s+reports no load/s);
  });
  await ask('Which client ignores its weights?', async () => {
    const item = page.getByRole('link', { name: /client "stubborn-1" \(legacy\) does not follow its weights: all of its requests go elsewhere/ });
    const all = page.getByRole('button', { name: /^Show all/ });
    // Three windows in a row make a deviation; a machine that is too busy for the fleet needs more,
    // and has other things that need attention.
    for (let i = 0; !(await item.isVisible()); i++) {
      assert.ok(i < 500, 'nothing that needs attention names stubborn-1');
      if (await all.isVisible()) await click(all);
      await page.waitForTimeout(200);
    }
    await click(item);
    await shows(page, /stubborn-1\s+does not follow its weights\s+checkout: all of its requests go elsewhere[^\t\n]*; it sends 100% to us-east\/a\s+legacy\s+eu-west\/c/s);
  });
  await ask('Which client ignores its weights? Without what needs attention', async () => {
    await click(page.getByRole('navigation').getByRole('link', { name: 'Clients' }));
    await click(page.getByRole('link', { name: /^does not follow its weights: [1-9]/ }));
    await shows(page, /stubborn-1\s+does not follow its weights\b.*legacy\s+eu-west\/c/s);
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    await page.getByText('Weights not followed').waitFor();
    // The destination is in the answer, not only in the table far below it.
    await page.locator('.answer', { hasText: 'it sends 100% to us-east/a' }).waitFor();
  });
  await ask('Which path do probes fail on?', async () => {
    await click(page.getByRole('navigation').getByRole('link', { name: 'Checkers' }));
    await shows(page, /Probes from us-east\/b to \d+ endpoints? in (us-east\/a|eu-west\/[ab]) have failed for/);
    await shows(page, /\d paths? on which probes fail/);
  });
  await ask('Which path do probes fail on? From what needs attention', async () => {
    const all = page.getByRole('button', { name: /^Show all/ });
    if (await all.isVisible()) await click(all);
    await click(page.getByRole('link', { name: /can't reach \d+ endpoints? .*that checkers in other zones reach/ }));
    await page.getByRole('heading', { name: /paths? on which probes fail/ }).waitFor();
  });
  await ask('Which path do probes fail on? From a service', async () => {
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    await click(page.getByRole('link', { name: 'the paths on which probes fail' }));
    await page.getByRole('heading', { name: /paths? on which probes fail/ }).waitFor();
  });
  await ask('What if a zone had half of its capacity?', async () => {
    await click(page.getByRole('link', { name: 'checkout', exact: true }));
    await click(page.getByRole('link', { name: 'What if…' }));
    await page.getByLabel(/^Capacity/).fill('50');
    await page.getByLabel('in these localities').fill('us-east/a');
    await click(page.getByRole('button', { name: 'Simulate' }));
    await page.waitForURL(/capacity=50/); // a colleague sees the same
    await shows(page, /(Yes|No)[:,].*1 service would change/s);
  });
}

/** One fact is one number, on every page and on the command line. */
async function agree(address, page) {
  const read = async (path) => (await fetch(new URL(`../v1/${path}`, address))).json();
  const both = async (what, shown, told) => {
    for (let i = 0; ; i++) { // both change with the fleet
      const [a, b] = [await shown(), await told()];
      if (a === b) return;
      assert.ok(i < 200, `${what}: the page shows ${a}, the API ${b}`);
      await page.waitForTimeout(200);
    }
  };
  await page.goto(`${address}#/service/checkout?from=us-east%2Fa&to=us-east%2Fa`);
  const tile = page.locator('.tile', { hasText: 'Coverage' }).locator('dd');
  const coverage = async () => `${(100 * (await read('explain?service=checkout&from=us-east/a')).coverage).toFixed(0)}%`;
  await both('coverage', async () => /^\d+%/.exec(await tile.innerText())?.[0], coverage);
  assert.notEqual(await coverage(), '100%', 'silent-1 reports nothing');
  // Why a capacity is what it is.
  const { localities } = await read('capacity?service=checkout');
  assert.ok(localities[0].why);
  await shows(page, /Capacity of us-east\/a\s+[\d.k]+ req\/s, declared [\d.k]+: \S+/);
  const inSync = async () => {
    const { clients } = await read('status');
    return `${clients.in_sync} of ${clients.total}`;
  };
  await page.goto(address);
  await both('in sync on the first page', async () => (await page.locator('.tile', { hasText: 'Clients in sync' }).locator('dd').innerText()).replace(/\s*of (\d+) clients?$/, ' of $1'), inSync);
  await page.goto(`${address}#/clients`);
  await both('in sync on Clients', async () => /in sync: (\d+ of \d+)/.exec(await page.locator('main').innerText())?.[1], inSync);
}

/** The page of a service says what needs attention of it, and a link leads to the part that shows it. */
async function parts(address, page) {
  await page.goto(`${address}#/service/checkout`);
  await page.getByRole('heading', { name: /things? needs? attention/ }).waitFor();
  await page.locator('.attention a', { hasText: /^checkout/ }).first().waitFor();
  await page.goto(`${address}#/service/checkout?part=endpoints`);
  const place = page.locator('#endpoints');
  // The charts above it come later, and it stays in sight.
  for (const there of [place, page.locator('canvas').first()]) {
    await there.waitFor();
    for (let i = 0; ; i++) {
      const box = await place.boundingBox();
      // A page scrolls by whole pixels, its parts lie between them.
      if (box && box.y > -1 && box.y < 600) break;
      assert.ok(i < 50, `the endpoints stand at ${box?.y}`);
      await page.waitForTimeout(100);
    }
  }
}

/** What is typed into any field counts, and fields offer what there is. */
async function fields(address, page) {
  await page.goto(`${address}#/whatif?lose=us-east-b`);
  await page.getByRole('alert').getByText('Did you mean us-east/b?').waitFor();
  await page.goto(`${address}#/whatif`);
  await page.getByLabel('in these localities').fill('us-east/b');
  await page.getByText('Name the service of which the capacity changes.').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Simulate' }).isDisabled());
  await page.getByLabel('in these localities').fill('');
  await page.getByLabel('Drain regions or zones, of this service or of all').fill('us-east/b');
  await page.locator('#zones-offered option[value="us-east/b"]').waitFor({ state: 'attached' });
  await page.getByLabel('Service', { exact: true }).fill('checkout');
  await page.locator('#localities-offered option[value="us-east/b"]').waitFor({ state: 'attached' });
  await page.getByRole('button', { name: 'Simulate' }).click();
  await page.waitForURL(/service=checkout&drain=us-east/);
  await page.getByText(/^(Yes|No|Not certain)[:,]/).waitFor();
}

/** The verdict counts as many problems as can be read below it, the worst first. */
async function counts(address, page) {
  await page.goto(`${address}#/whatif?demand=200`);
  const verdict = page.locator('.verdict');
  await verdict.waitFor();
  const said = await verdict.innerText();
  const more = Number(/and (\d+) more problems?\./.exec(said)?.[1] ?? 0);
  assert.ok(more > 6, said);
  const rest = page.locator('.rest > summary');
  await rest.click();
  const texts = await page.locator('.risks li').allInnerTexts();
  const lasting = texts.filter((t) => !t.startsWith('at first only'));
  assert.equal(lasting.length, more, `${said}\n${texts.join('\n')}`);
  assert.ok(lasting.every((t) => !said.includes(t.split(';')[0])), `${said}\n${texts.join('\n')}`);
  assert.match(await rest.innerText(), new RegExp(`^and ${texts.length - 5} more problems?$`));
}

/** A table that is wider than the screen says so, until its end is in sight; colours have one meaning each. */
async function sideways(address) {
  const page = await browser.newPage({ viewport: { width: 390, height: 844 } });
  await page.goto(`${address}#/service/checkout`);
  const table = page.getByRole('group', { name: 'Where each client locality sends' });
  await table.waitFor();
  const hint = page.locator('.sideways', { hasText: 'more columns' }).first();
  await hint.filter({ hasText: /right →$/ }).waitFor();
  assert.match(await table.evaluate((x) => getComputedStyle(x).maskImage), /gradient/);
  await table.evaluate((x) => x.scrollTo(x.scrollWidth, 0));
  await hint.filter({ hasText: /^← more columns on the left$/ }).waitFor();
  // Nothing of a zone's line lies beyond the edge.
  await page.goto(`${address}#/regions`);
  await page.getByRole('link', { name: 'May us-east/b be drained?' }).waitFor();
  const losses = page.getByRole('group', { name: 'What if a zone is lost?' });
  assert.equal(await losses.evaluate((x) => x.scrollWidth - x.clientWidth), 0);
  assert.equal(await page.locator('.matrix [class*=heat-]').count(), 0); // which are of utilization
  assert.ok((await page.locator('.matrix .share-4').count()) > 0);
  await page.getByText('Part of what the row sends:').waitFor();
  await page.goto(`${address}#/time?service=checkout&span=hour`);
  await page.locator('.then .share-4').first().waitFor();
  await page.getByText('Part of what the row sends:').waitFor();
  await page.close();
}

/** A changed file is played through, and a wrong one is told with its place. */
async function file(address, page) {
  await page.goto(`${address}#/whatif`);
  await page.getByLabel('Its text').fill('services:\n  - nam: x\n');
  await page.getByRole('button', { name: 'Play the file through' }).click();
  await page.getByRole('alert').waitFor();
  await page.getByLabel('A file from your disk').setInputFiles({ name: 'isobar.yaml', mimeType: 'text/yaml', buffer: Buffer.from('services: []\n') });
  await page.getByRole('button', { name: 'Play the file through' }).click();
  await shows(page, /Is it safe to use this file\?|in force/);
}

/** The loss of each zone, which the server plays once a minute. */
async function losses(address, page) {
  await page.goto(`${address}#/regions`);
  // Each zone is named, with a yes or no of its own.
  await page.getByRole('row', { name: /^us-east\/b (yes the other zones would carry|just, at the limit \d+ of|no \d+ of \d+ services? would)/ }).waitFor({ timeout: 150_000 });
  await shows(page, /Simulated \d+ (s|min) ago\./);
  // A yes says how full it would get.
  const { zones } = await (await fetch(new URL('../v1/flows', address))).json();
  if (zones.some((z) => z.loss?.fullest)) await shows(page, /the fullest would be \S+ of \S+, at [\d.]+% of its capacity; its ceiling is \d+%/);
  await page.screenshot({ path: `${out}losses-1440x900-light.png`, fullPage: true });
  await page.getByRole('link', { name: /^us-east to us-east:/ }).click();
  await page.getByRole('heading', { name: 'Zones: us-east to us-east' }).waitFor();
  await page.locator('.matrix th', { hasText: 'us-east/b' }).first().waitFor();
}

/** An answer that stays on the screen is played again when the service has changed. */
async function changes(address, page) {
  await page.goto(`${address}#/service/shipping?act=drain&at=us-east%2Fb`);
  const plan = page.locator('.confirm .facts span', { hasText: 'compared with plan' });
  await plan.waitFor();
  const before = await plan.innerText();
  await order('surge');
  for (let i = 0; (await plan.innerText()) === before; i++) {
    assert.ok(i < 300, `the answer is still the one of before: ${before}`);
    await page.waitForTimeout(200);
  }
}

/** Drains, is refused, pauses and resumes; a stale page is told. */
async function act(address, page, other) {
  const drain = async (p) => {
    await p.goto(`${address}#/service/checkout`);
    await p.getByLabel('Locality', { exact: true }).selectOption('us-east/b');
    await p.getByRole('button', { name: 'Drain…', exact: true }).click();
    await p.getByRole('button', drainOrder).waitFor();
    await p.getByLabel('Reason, for the history').fill(markup);
  };
  await drain(page);
  await drain(other);
  await page.getByRole('button', drainOrder).click();
  // A fleet that carried the loss of a zone no longer would: that is refused first.
  const forced = page.getByLabel('Drain nevertheless');
  const done = page.getByText(/Drain: 2 endpoints in us-east\/b, in force with plan/);
  await forced.or(done).waitFor();
  if (await forced.isVisible()) {
    await forced.check();
    await page.getByRole('button', drainOrder).click();
  }
  await done.waitFor();
  await other.getByText('The service was changed meanwhile.').waitFor();
  assert.ok(await other.getByRole('button', drainOrder).isDisabled());
  await page.getByRole('button', { name: 'End the drain…' }).click();
  await page.getByRole('button', { name: /^End the drain of us-east\/b (now|despite this)$/ }).click();
  await page.getByText(/End the drain: 2 endpoints/).waitFor();
  await page.getByRole('button', { name: 'Pause…' }).click();
  await page.getByLabel('Who you are').fill(markup);
  await page.getByRole('button', { name: 'Pause checkout now' }).click();
  await page.getByText(/Weights are paused/).waitFor();
  await page.getByRole('button', { name: 'Resume…' }).click();
  await page.getByRole('button', { name: 'Resume checkout now' }).click();
  await page.getByText(/Weights are paused/).waitFor({ state: 'detached' });
}

/** Returns to earlier weights from Time: first the outcome, then the order. */
async function rollBack(address, page) {
  await page.goto(`${address}#/time?service=checkout&span=hour`);
  const outcome = page.getByRole('form', { name: 'Rollback: what would happen' });
  const order = page.getByRole('button', { name: /^Return to version \d+ (now|despite this)/ });
  // Back to a change that differs from what is in force: the drain and its end have made some.
  for (let i = 0; i < 30; i++) {
    await earlier(page);
    await page.getByRole('button', { name: /^Before this change/ }).click();
    await outcome.waitFor();
    if (await order.isVisible()) break;
  }
  await page.getByLabel('Reason, for the history').fill(markup);
  await order.click();
  const done = page.getByText(/has the weights of version \d+ again, and is paused/);
  const forced = page.getByLabel('Return nevertheless');
  await done.or(forced).waitFor();
  if (await forced.isVisible()) {
    await forced.check();
    await order.click();
  }
  await done.waitFor();
  await page.getByRole('link', { name: 'checkout', exact: true }).last().click();
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
    '', '#/service/checkout', '#/service/checkout?from=%3Cimg%20src%3Dx%3E&to=%3Cb%3E', `#/service/${encodeURIComponent('<b>x')}`, `#/service/${encodeURIComponent('odd:name|x')}`, '#/clients', '#/checkers', '#/replicas',
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
  await page.goto(`${address}#/checkers`);
  await page.getByText(markup).first().waitFor();
  await page.goto(`${address}#/time`);
  await page.getByLabel('Minute, in your time zone').waitFor();
}

/** The lines that the fleet's program prints: its addresses, then an answer to each order. */
const lines = createInterface(fleet.stdout)[Symbol.asyncIterator]();
async function next() {
  const { value, done } = await lines.next();
  if (done) throw new Error('the fleet ended');
  return JSON.parse(value);
}
async function order(what) {
  fleet.stdin.write(`${what}\n`);
  assert.equal(await next(), 'done');
}

try {
  const addresses = await next();
  const address = addresses.fleet;
  const begin = Date.now();
  const said = (text) => console.log(`${text} (${((Date.now() - begin) / 1000).toFixed(0)} s)`);
  const errors = [];
  const page = await bound(address, errors);
  if (process.env.PICTURES === 'yes') await takePictures(address);
  await order('inject');
  // SCREENS=no leaves them out, for those who work on the rest.
  if (process.env.SCREENS !== 'no') {
    for (const [width, height] of [[1440, 900], [390, 844], [2560, 1440]]) await lookAtAll(address, addresses.group[0], width, height);
    said('every screen at three sizes, light and dark, without violations');
  }
  await questions(address, page);
  await whatDiffers(address, page);
  await zonesRest(address, page);
  await capacitiesAreMarked(address, page);
  await agree(address, page);
  await parts(address, page);
  await fields(address, page);
  await counts(address, page);
  await sideways(address);
  await file(address, page);
  await losses(address, page);
  said('questions answered, a file played through');
  await changes(address, page);
  await act(address, page, await bound(address, errors));
  await rollBack(address, page);
  await escapes(browser, address);
  await wrong(browser, address);
  await back(browser, address);
  said('drain, drain back, pause, resume, rollback, and a stale page that is refused');
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
  // And through time, with the arrows.
  await page.goto(`${address}#/time?span=hour`);
  await page.getByRole('slider', { name: 'Moment' }).focus();
  await page.keyboard.press('ArrowLeft');
  await page.waitForURL(/from=/);
  said('by keyboard alone');

  const [most, few] = [await rows(browser, address), await requests(browser, address)];
  said(`10,000 services in ${most} rows, the first screen in ${few} requests, none while nobody looks`);
  await loading(browser, address);
  await steady(browser, address);
  await steadyService(browser, address);
  await held(browser, address);
  await columns(browser, address);
  await drained(browser, address);
  await connected(browser, address);
  said('a page that loads says so, and what needs attention moves nothing');
  await replicas(browser, addresses, order);
  said('replicas: leader, failure tolerance, a lost one');
  await access(browser, addresses);
  said('certificates: an operator may act, a client may look');
  await base(browser, addresses);
  said('behind a proxy that removes its path');
  await persist(browser, addresses, order);
  said('a token, a base path, and the same moment after a restart');
  said('the console does its job');
} finally {
  await browser.close();
  fleet.stdin.end();
  await new Promise((resolve) => (fleet.exitCode === null ? fleet.once('exit', resolve) : resolve()));
}
