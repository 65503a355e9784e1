import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

export default defineConfig({
  // Relative, so that a proxy may serve the console beneath a path of its own.
  base: './',
  plugins: [svelte()],
  build: {
    outDir: '../internal/console/dist',
    emptyOutDir: true,
    target: 'es2022',
    modulePreload: false, // its polyfill is for browsers that the console does not serve
    assetsInlineLimit: 0,
  },
  test: { include: ['src/**/*.test.ts'] },
});
