import { readFileSync } from 'node:fs';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vitest/config';

/**
 * Fails where the packages of which code gets into the script are not those that
 * package.json lists as bundled: their licences are shown with the program.
 */
function bundled(): Plugin {
  const listed = (JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8')) as { bundled: string[] }).bundled;
  return {
    name: 'bundled',
    generateBundle(_, files) {
      const found = new Set<string>();
      for (const file of Object.values(files)) {
        if (file.type !== 'chunk') continue;
        for (const [module, { renderedLength }] of Object.entries(file.modules)) {
          const name = /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(module)?.[1];
          if (name && renderedLength > 0) found.add(name);
        }
      }
      const names = [...found].sort();
      if (names.join() !== listed.join()) this.error(`the script holds ${names.join(', ')}: list them in package.json as "bundled", then run make licenses`);
    },
  };
}

export default defineConfig({
  // Relative, so that a proxy may serve the console beneath a path of its own.
  base: './',
  plugins: [svelte(), bundled()],
  build: {
    outDir: '../internal/console/dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false, // its polyfill is for browsers that the console does not serve
    assetsInlineLimit: 0,
  },
  test: { include: ['src/**/*.test.ts'] },
});
