// What does not depend on the machine: rows in the page, requests, and the narrowest screen.
import assert from 'node:assert/strict';

/** Ten thousand services are a few rows at a time. */
export async function rows(browser, address) {
  const answer = await fetch(new URL('../v1/stream', address));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('\n')) text += (await reader.read()).value;
  await reader.cancel();
  const line = JSON.parse(text.slice(0, text.indexOf('\n')));
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

/** Few requests open the first screen, and none follow while nobody looks at the page. */
export async function requests(browser, address) {
  const page = await browser.newPage();
  const asked = [];
  page.on('request', (r) => asked.push(r.url()));
  await page.goto(address);
  await page.locator('tbody tr.data').first().waitFor();
  assert.ok(asked.length <= 6, `the first screen took ${asked.length} requests: ${asked.join(' ')}`);
  const first = asked.length;
  await page.goto(`${address}#/time?service=checkout`);
  await page.locator('.scrubber').waitFor();
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
