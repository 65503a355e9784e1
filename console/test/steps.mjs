// Steps that several of the browser tests take.

/** Goes to the change before the one that Time shows, and returns once it is shown. */
export async function earlier(page) {
  const before = page.url();
  await page.getByRole('button', { name: 'Earlier change' }).click();
  await page.waitForURL((url) => url.href !== before);
  const at = new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get('at');
  // Until then the page shows the change before, and offers to return to that one.
  await page.locator(`.answer time[datetime="${new Date(at).toISOString()}"]`).first().waitFor();
}

/** Returns once a page waits for no answer but that of a stream, and has asked for nothing for a moment. */
export function quiet(page) {
  const open = new Set();
  page.on('request', (r) => !r.url().includes('/v1/stream') && open.add(r));
  for (const end of ['requestfinished', 'requestfailed']) page.on(end, (r) => open.delete(r));
  return async () => {
    for (let still = 0, i = 0; still < 5; i++) {
      if (i === 150) throw new Error(`the page still waits for ${[...open].map((r) => r.url()).join(' ')}`);
      await page.waitForTimeout(200);
      still = open.size === 0 ? still + 1 : 0;
    }
  };
}
