// Measures what open consoles cost the server, and how the page feels with a large
// fleet. `make bench-console` runs it. SERVICES, LOCALITIES, CONSOLES, SECONDS
// and SETTLE change the size; ONLY=page leaves out what they cost the server. Two cores
// with nothing else to do, or the times mean little.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const services = number('SERVICES', 10_000);
const localities = number('LOCALITIES', 30);
const consoles = number('CONSOLES', 50);
const seconds = number('SECONDS', 20);
const settle = number('SETTLE', 90);
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
function run(...args) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  children.push(child);
  return child;
}
async function cpu() {
  const text = await (await fetch(`${base}/metrics`)).text();
  return { at: performance.now() / 1000, used: Number(/^process_cpu_seconds_total (\S+)/m.exec(text)?.[1]), memory: Number(/^process_resident_memory_bytes (\S+)/m.exec(text)?.[1]) };
}
/** The part of a core that the server takes over some seconds. */
async function load() {
  const a = await cpu();
  await sleep(seconds * 1000);
  const b = await cpu();
  return (b.used - a.used) / (b.at - a.at);
}
const percent = (x) => `${(100 * x).toFixed(2)}%`;
const say = (what, value) => console.log(`${what.padEnd(64)} ${value}`);

/** What consoles cost the server. */
async function server() {
  const without = await load();
  say('server, no console open, of a core', percent(without));

  let bytes = 0;
  const ends = [];
  const read = async (signal) => {
    const answer = await fetch(`${base}/v1/stream`, { signal });
    for await (const piece of answer.body) bytes += piece.length;
  };
  const open = (n) => {
    for (let i = 0; i < n; i++) {
      const end = new AbortController();
      ends.push(end);
      read(end.signal).catch(() => undefined);
    }
  };
  open(1);
  await sleep(8000);
  const one = await load();
  say('server, one console open, of a core', `${percent(one)}, ${percent(one - without)} more`);
  open(consoles - 1);
  await sleep(8000);
  const before = bytes;
  const all = await load();
  say(`server, ${consoles} consoles open, of a core`, `${percent(all)}, ${percent(all - without)} more`);
  say('sent to each of them', `${((bytes - before) / consoles / seconds / 1024).toFixed(1)} KiB/s`);
  for (const end of ends) end.abort();
  await sleep(3000);
  const after = await load();
  say('server, all closed again, of a core', `${percent(after)}, ${percent(after - without)} more`);
  say('memory of the server', `${((await cpu()).memory / (1 << 20)).toFixed(0)} MiB`);
}

for (const signal of ['SIGTERM', 'SIGINT']) process.once(signal, () => process.exit(1));
process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')));

try {
  const began = performance.now();
  run('serve', '-c', join(dir, 'isobar.json'));
  for (;;) {
    const ready = await fetch(`${base}/readyz`).catch(() => undefined);
    if (ready?.ok) break;
    if (performance.now() - began > 120_000) throw new Error('the server is not ready after two minutes');
    await sleep(200);
  }
  say('services x localities', `${services} x ${localities}`);
  run('bench', '--server', '127.0.0.1:18970', '--clients', String(Math.min(1000, Math.max(100, services / 10))), '--rate', '100', '--duration', '20m');
  await sleep(1000 * settle); // until shares have settled: before that the server works more

  if (process.env.ONLY !== 'page') await server();

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
  const frames = await page.evaluate(async () => {
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
    return { median: times[150], p99: times[296], rows, top: list.scrollTop };
  });
  say('frames while scrolling, median and 99th percentile', `${frames.median.toFixed(0)} ms, ${frames.p99.toFixed(0)} ms (aim 50 ms)`);
  say('rows in the page, at most', String(frames.rows));
  await browser.close();
} finally {
  for (const child of children) child.kill('SIGKILL');
  await sleep(500);
  rmSync(dir, { recursive: true, force: true });
}
