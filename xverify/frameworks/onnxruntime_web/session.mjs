// Computes ONNX graphs with onnxruntime-web, for the worker that starts this program. graphs.mjs describes the messages.
//
// usage: node session.mjs MODULES THREADS READ WRITE [CHROMIUM]
//   MODULES: the folder node_modules. THREADS: of WebAssembly. READ, WRITE: file descriptors of the pipes from and to the worker.
//   CHROMIUM: a browser, in a page of which WebGPU computes; without it, WebAssembly computes in this process.
//
// The program ends when the pipe from the worker is closed.

import { readFileSync, readSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { facts, Graphs, pack, PREFIX, sizes } from './graphs.mjs';

const [modules, threads, from, to, chromium] = process.argv.slice(2);
const MOST = 2 ** 30; // bytes of one read or write; the system takes no more than 2 GiB

// Read this number of bytes. Returns null at the end of the pipe.
function read(size) {
  const bytes = Buffer.allocUnsafeSlow(size);
  for (let done = 0; done < size; ) {
    const more = readSync(Number(from), bytes, done, Math.min(size - done, MOST), null);
    if (!more) return null;
    done += more;
  }
  return bytes;
}

function write(message) {
  for (const bytes of message) {
    for (let done = 0; done < bytes.length; ) {
      done += writeSync(Number(to), bytes, done, Math.min(bytes.length - done, MOST));
    }
  }
}

// Read the graph and its external data, where a request names files: it then has them in its data.
function withFiles(header, data) {
  const external = (header.external ?? []).map(({ path, data: file }) => ({ path, content: readFileSync(file) }));
  const parts = [header.path ? readFileSync(header.path) : data, ...external.map((each) => each.content)];
  const named = external.map(({ path, content }) => ({ path, bytes: content.length }));
  return [{ ...header, external: named }, parts.length > 1 ? Buffer.concat(parts) : parts[0]];
}

// What answers a header and data with a message.
async function start() {
  if (chromium) {
    const { startPage } = await import('./browser.mjs');
    return startPage(modules, threads, chromium);
  }
  const ort = createRequire(join(modules, 'package.json'))('onnxruntime-web');
  ort.env.wasm.numThreads = Number(threads);
  const graphs = new Graphs(ort, 'wasm');
  return { hello: facts(ort), answer: (header, data) => graphs.answer(header, data) };
}

try {
  const { hello, answer } = await start();
  write(pack({ node: process.version, ...hello }));
  for (;;) {
    const prefix = read(PREFIX);
    if (prefix === null) break;
    const [length, size] = sizes(prefix);
    const header = JSON.parse(read(length).toString());
    const data = read(size);
    let message;
    try {
      message = await answer(...withFiles(header, data));
    } catch (error) {
      message = pack({ error: error.message });
    }
    write(message);
  }
} catch (error) {
  write(pack({ error: error.message }));
}
process.exit(0);
