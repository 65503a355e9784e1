// Measures what open consoles cost the server, and how the page feels with a large
// fleet. `make bench-console` runs it. SERVICES, LOCALITIES and CONSOLES change the size,
// SECONDS the length of a period, ROUNDS how often periods without consoles, with one and
// with all of them alternate, SETTLE how many seconds the server has at most until its
// processor time is steady; ONLY=page leaves out what consoles cost the server.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const services = number('SERVICES', 10_000);
const localities = number('LOCALITIES', 30);
const consoles = number('CONSOLES', 50);
const seconds = number('SECONDS', 60); // every 12 ticks of 5 s, the server solves calm services again
const rounds = number('ROUNDS', 3);
const settle = number('SETTLE', 300);
/** Of a core: two periods in a row that differ by less show a steady server. */
const steadiness = 0.01;
const aims = { one: 0.01, all: 0.05 };
const program = process.env.ISOBAR ?? '../bin/isobar';

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const dir = mkdtempSync(join(tmpdir(), 'isobar-bench-'));
const zones = Array.from({ length: localities }, (_, i) => `r${Math.floor(i / 3)}/${'abc'[i % 3]}`);
const file = {
  xds: { listen: '127.0.0.1:18970' },
  admin: { listen: '127.0.0.1:18971' },
  state_dir: join(dir, 'state'),
  n1_interval: '0s',
  services: Array.from({ length: services }, (_, s) => ({
    name: `service-${String(s).padStart(5, '0')}`,
    mode: 'full',
    localities: zones.map((locality, z) => ({ locality, max_rate: 100, endpoints: [`10.${Math.floor(s / 250)}.${s % 250}.${z + 1}:80`] })),
  })),
};
writeFileSync(join(dir, 'isobar.json'), JSON.stringify(file));

const base = 'http://127.0.0.1:18971';
const children = [];
let server; // the process
function run(stderr, ...args) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', stderr] });
  children.push(child);
  return child;
}
/** The processor time of the server in seconds, of the kernel: a scrape of its metrics takes a while, and some work. */
function cpu() {
  const fields = readFileSync(`/proc/${server.pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return { at: performance.now() / 1000, used: (Number(fields[11]) + Number(fields[12])) / 100, memory: 4096 * Number(fields[21]) };
}
/** The part of a core that the server takes over some seconds. */
async function load() {
  const a = cpu();
  await sleep(seconds * 1000);
  const b = cpu();
  return (b.used - a.used) / (b.at - a.at);
}
const percent = (x) => `${(100 * x).toFixed(2)}%`;
const say = (what, value) => console.log(`${what.padEnd(64)} ${value}`);
const median = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  return (sorted[Math.floor((sorted.length - 1) / 2)] + sorted[Math.ceil((sorted.length - 1) / 2)]) / 2;
};

/** Waits until the processor time of the server is steady, for a bounded time. */
async function steady() {
  const began = performance.now();
  const passed = () => Math.round((performance.now() - began) / 1000);
  let before = await load();
  let change = Infinity;
  while (change >= steadiness && passed() < settle) {
    const now = await load();
    change = Math.abs(now - before);
    before = now;
  }
  const found = change < steadiness ? 'steady' : `not steady, the last two periods differ by ${percent(change)},`;
  say('processor time of the server without a console', `${found} after ${passed()} s`);
}

/** Consoles that read the stream of changes, with what they were sent. */
const readers = {
  ends: [],
  bytes: 0,
  ended: 0, // by the server
  open(n) {
    for (let i = 0; i < n; i++) {
      const end = new AbortController();
      this.ends.push(end);
      this.read(end.signal).catch(() => undefined).finally(() => {
        if (!end.signal.aborted) this.ended++;
      });
    }
  },
  async read(signal) {
    const answer = await fetch(`${base}/v1/stream`, { signal });
    if (!answer.ok) throw new Error(`the stream answers ${answer.status}`);
    for await (const piece of answer.body) this.bytes += piece.length;
  },
  close() {
    for (const end of this.ends) end.abort();
    this.ends = [];
  },
};

/** A period with consoles: the first seconds, in which each is sent everything, do not count. */
async function opened(n) {
  readers.open(n);
  await sleep(8000);
  const before = readers.bytes;
  const used = await load();
  const sent = (readers.bytes - before) / n / seconds / 1024;
  readers.close();
  await sleep(3000);
  return { used, sent };
}

/** What the functions take that a pattern names, with all that they call, and what the whole program does: [part, whole]. */
function taken(profile, pattern, unit, ...flags) {
  const args = ['tool', 'pprof', '-top', '-nodefraction=0', `-unit=${unit}`, `-focus=${pattern}`, ...flags, program, profile];
  const top = execFileSync('go', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const found = /accounting for ([\d.]+)\w*, [\d.]+% of ([\d.]+)\w* total/.exec(top);
  if (!found) throw new Error(`no sum in ${top}`);
  return [Number(found[1]), Number(found[2])];
}

/**
 * The part of a core that a number of consoles takes, by profiles of one period: what the goroutines of the
 * streams run, and as much of the garbage collection as they allocate of all that is allocated.
 */
async function profiled(n) {
  readers.open(n);
  await sleep(8000);
  const [work, allocations] = await Promise.all(['profile', 'allocs'].map(async (kind) => {
    const answer = await fetch(`${base}/debug/pprof/${kind}?seconds=${seconds}`);
    if (!answer.ok) throw new Error(`the profile answers ${answer.status}`);
    const file = join(dir, `${kind}.pb`);
    writeFileSync(file, Buffer.from(await answer.arrayBuffer()));
    return file;
  }));
  readers.close();
  await sleep(3000);
  const [streams] = taken(work, 'getStream$', 'ms');
  const [collection] = taken(work, 'runtime.(gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge)$', 'ms');
  const [theirs, all] = taken(allocations, 'getStream$', 'B', '-sample_index=alloc_space');
  return { streams: streams / 1000 / seconds, collection: (collection * theirs) / all / 1000 / seconds };
}

/**
 * What consoles cost the server. A period with consoles stands between two without: the
 * mean of these is what it is compared with, so that a slow change of the server's own
 * work cancels out.
 */
async function costs() {
  const closed = [await load()];
  const more = { one: [], all: [] };
  const sent = [];
  for (let i = 0; i < rounds; i++) {
    for (const [which, n] of [['one', 1], ['all', consoles]]) {
      const period = await opened(n);
      closed.push(await load());
      more[which].push(period.used - (closed.at(-2) + closed.at(-1)) / 2);
      if (which === 'all') sent.push(period.sent);
    }
  }
  const spread = (list) => `${percent(Math.min(...list))} to ${percent(Math.max(...list))}`;
  say(`server, no console open, of a core, median of ${closed.length}`, `${percent(median(closed))} (first ${percent(closed[0])}, last ${percent(closed.at(-1))})`);
  say(`one console more, of a core, median of ${rounds}`, `${percent(median(more.one))} (${spread(more.one)}; aim ${percent(aims.one)})`);
  say(`${consoles} consoles more, of a core, median of ${rounds}`, `${percent(median(more.all))} (${spread(more.all)}; aim ${percent(aims.all)} for 50)`);
  for (const n of [1, consoles]) {
    const p = await profiled(n);
    say(`by profiles, ${n} consoles, of a core`, `${percent(p.streams + p.collection)} (their work ${percent(p.streams)}, their part of the garbage collection ${percent(p.collection)})`);
  }
  say('sent to each of them', `${median(sent).toFixed(1)} KiB/s`);
  say('memory of the server', `${(cpu().memory / (1 << 20)).toFixed(0)} MiB`);
  if (readers.ended > 0) throw new Error(`${readers.ended} consoles lost their stream: the figures are of fewer than ${consoles}`);
}

/**
 * The frames of 300 steps through the list. The server's own decisions take both cores for a
 * part of each 5 s, and a pass takes about as long: one pass alone tells little.
 */
async function scrolled(page, i) {
  await page.goto(`${base}/ui/?pass=${i}`);
  await page.locator('tbody tr.data').first().waitFor();
  return page.evaluate(async () => {
    const list = document.querySelector('.tall');
    const times = [];
    let last = performance.now();
    let rows = 0;
    for (let i = 0; i < 300; i++) {
      list.scrollTop += 700;
      await new Promise((done) => requestAnimationFrame(done));
      const now = performance.now();
      times.push(now - last);
      last = now;
      rows = Math.max(rows, list.querySelectorAll('tbody tr').length);
    }
    times.sort((a, b) => a - b);
    return { median: times[150], p99: times[296], rows };
  });
}

for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => process.exit(1));
process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')));

try {
  const began = performance.now();
  server = run('inherit', 'serve', '-c', join(dir, 'isobar.json'));
  for (;;) {
    const ready = await fetch(`${base}/readyz`).catch(() => undefined);
    if (ready?.ok) break;
    if (performance.now() - began > 120_000) throw new Error('the server is not ready after two minutes');
    await sleep(200);
  }
  say('services x localities', `${services} x ${localities}`);
  run('ignore', 'bench', '--server', '127.0.0.1:18970', '--clients', String(Math.min(1000, Math.max(100, services / 10))), '--rate', '100', '--duration', '60m');
  await steady();
  if (process.env.ONLY !== 'page') await costs();

  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
  const paints = [];
  for (let i = 0; i < 5; i++) {
    await page.goto('about:blank');
    const start = performance.now();
    await page.goto(`${base}/ui/?${i}`);
    await page.locator('tbody tr.data').first().waitFor();
    paints.push(performance.now() - start);
  }
  paints.sort((a, b) => a - b);
  say('from the address to the first row, median of 5', `${paints[2].toFixed(0)} ms (aim 1000 ms)`);
  const passes = [];
  for (let i = 0; i < 5; i++) passes.push(await scrolled(page, i));
  const p99 = passes.map((p) => p.p99);
  say('frames while scrolling, median', `${median(passes.map((p) => p.median)).toFixed(0)} ms (aim 50 ms)`);
  say('99th percentile of frames, median of 5 passes', `${median(p99).toFixed(0)} ms (${Math.min(...p99).toFixed(0)} to ${Math.max(...p99).toFixed(0)} ms; aim 50 ms)`);
  say('rows in the page, at most', String(Math.max(...passes.map((p) => p.rows))));
  await browser.close();
} finally {
  for (const child of children) child.kill('SIGKILL');
  await sleep(500);
  rmSync(dir, { recursive: true, force: true });
}
