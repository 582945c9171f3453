// A page of a headless Chromium that computes with WebGPU. It asks a server on the loopback interface for messages, and posts the
// answers there. graphs.mjs describes the messages.

import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, normalize } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { pack, PREFIX, sizes } from './graphs.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const TYPES = { html: 'text/html', mjs: 'text/javascript', wasm: 'application/wasm' };
const START = 120_000; // ms until the page must have greeted
const FLAGS = [
  '--headless', '--no-first-run', '--disable-extensions', '--disable-background-networking', '--disable-dev-shm-usage', '--log-level=3',
  '--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader',
];
const PAGE = `<!DOCTYPE html><script type="module">
import * as ort from './dist/ort.webgpu.min.mjs';
import { facts, Graphs, pack, PREFIX, sizes } from './graphs.mjs';
const post = (message) => fetch('reply', { method: 'POST', body: new Blob(message) });
const adapter = await navigator.gpu?.requestAdapter();
if (!adapter) {
  await post(pack({ error: 'this browser has no WebGPU adapter' }));
} else {
  const { vendor, architecture } = adapter.info;
  ort.env.wasm.numThreads = THREADS;
  ort.env.webgpu.adapter = adapter;
  const graphs = new Graphs(ort, 'webgpu');
  await post(pack({ ...facts(ort), adapter: [vendor, architecture].filter(Boolean).join(' '), browser: navigator.userAgent }));
  for (let watched = false; ; ) {
    const message = new Uint8Array(await (await fetch('next')).arrayBuffer());
    const [length, size] = sizes(message);
    const header = JSON.parse(new TextDecoder().decode(message.subarray(PREFIX, PREFIX + length)));
    const reply = await graphs.answer(header, message.subarray(PREFIX + length));
    if (!watched && graphs.opened) {
      watched = true;
      (await ort.env.webgpu.device).lost.then(({ message }) => { graphs.lost = '; the WebGPU device was lost: ' + message; });
    }
    await post(reply);
  }
}
</script>`;

// Start the server and the browser. Returns what the page says when it greets, and what answers a header and data.
export async function startPage(modules, threads, chromium) {
  const secret = randomBytes(16).toString('hex'); // no other user of this machine knows the address
  const dist = join(modules, 'onnxruntime-web', 'dist');
  let deliver; // resolves the promise of the next answer
  let waiting; // resolves that of the page's next question for a message, with the response to it
  const next = () => new Promise((resolve) => { deliver = resolve; });

  const server = createServer((request, response) => {
    const [, key, ...path] = request.url.split('/');
    const name = normalize(path.join('/'));
    const headers = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };
    if (key !== secret) {
      response.writeHead(403).end();
    } else if (name === 'next') {
      waiting(response);
    } else if (name === 'reply') {
      const parts = [];
      request.on('data', (part) => parts.push(part));
      request.on('end', () => { response.end(); deliver(Buffer.concat(parts)); });
    } else {
      const file = name.startsWith('dist/') ? join(dist, name.slice(5)) : join(HERE, 'graphs.mjs');
      const type = name === 'page.html' ? 'html' : name.split('.').pop();
      try {
        const body = type === 'html' ? PAGE.replace('THREADS', threads) : readFileSync(file);
        response.writeHead(200, { ...headers, 'Content-Type': TYPES[type] }).end(body);
      } catch {
        response.writeHead(404).end();
      }
    }
  });
  server.keepAliveTimeout = 0; // this process may be away from its connections for long
  let asks = new Promise((resolve) => { waiting = resolve; });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

  const profile = mkdtempSync(join(tmpdir(), 'chromium-'));
  const root = process.getuid?.() === 0 ? ['--no-sandbox'] : []; // Chromium refuses to start for root otherwise
  // Other users see the arguments of a process, and cannot read this folder.
  const begin = join(profile, 'begin.html');
  writeFileSync(begin, `<script>location = 'http://127.0.0.1:${server.address().port}/${secret}/page.html'</script>`);
  const greeting = next();
  const browser = spawn(chromium, [...FLAGS, ...root, `--user-data-dir=${profile}`, pathToFileURL(begin).href], { stdio: ['ignore', 2, 2] });
  process.on('exit', () => browser.kill('SIGKILL'));
  const ended = new Promise((_, reject) => {
    browser.on('error', (error) => reject(new Error(`the browser cannot be started: ${error.message}`)));
    browser.on('exit', (code, signal) => reject(new Error(`the browser ended (${signal ?? code})`)));
  });
  ended.catch(() => {}); // each wait for the page tells it
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`the page of the browser did not start within ${START / 1000} s`)), START).unref();
  });
  late.catch(() => {});

  const message = await Promise.race([greeting, ended, late]);
  const [length] = sizes(message);
  const hello = JSON.parse(message.subarray(PREFIX, PREFIX + length).toString());
  if (hello.error) throw new Error(hello.error);

  const answer = async (header, data) => {
    const response = await Promise.race([asks, ended]);
    asks = new Promise((resolve) => { waiting = resolve; });
    const reply = next();
    pack(header, [data]).forEach((bytes) => response.write(bytes));
    response.end();
    return [await Promise.race([reply, ended])];
  };
  return { hello, answer };
}
