// Computes ONNX graphs with onnxruntime-web, for the worker that starts this program.
//
// usage: node session.mjs MODULES THREADS READ WRITE
//   MODULES: the folder node_modules. THREADS: of WebAssembly. READ, WRITE: file descriptors of the pipes from and to the worker.
//
// A message is the number of bytes of its header (uint32) and of its data (uint64), in little endian, the header in JSON, and the
// data, which are the tensors that the header lists, one after another. The program ends when the pipe from the worker is closed.

import { readFileSync, readSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [modules, threads, from, to] = process.argv.slice(2);
const ort = createRequire(join(modules, 'package.json'))('onnxruntime-web');
ort.env.wasm.numThreads = Number(threads);

const PREFIX = 12; // bytes of the two numbers
const MOST = 2 ** 30; // bytes of one read or write; the system takes no more than 2 GiB
const SPINS = 0.02; // seconds; after calls that took longer, threads of WebAssembly keep a core busy for up to 30 ms
const REST = 50; // ms until they sleep
const CLOCKED = 1000; // readings of the clock by which its resolution is measured
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bool: Uint8Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};

const sessions = new Map();
let opened = 0;

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

function write(bytes) {
  for (let done = 0; done < bytes.length; ) {
    done += writeSync(Number(to), bytes, done, Math.min(bytes.length - done, MOST));
  }
}

// Send a message. tensors: name -> tensor of onnxruntime-web.
function send(header, tensors = {}) {
  const views = [];
  header.tensors = Object.entries(tensors).map(([name, tensor]) => {
    if (!(tensor.type in ARRAYS)) throw new Error(`unsupported data type: ${tensor.type}`);
    const { data } = tensor;
    views.push(Buffer.from(data.buffer, data.byteOffset, data.byteLength));
    return { name, type: tensor.type, dims: tensor.dims, bytes: data.byteLength };
  });
  const text = Buffer.from(JSON.stringify(header));
  const prefix = Buffer.alloc(PREFIX);
  prefix.writeUInt32LE(text.length, 0);
  prefix.writeBigUInt64LE(BigInt(views.reduce((sum, each) => sum + each.length, 0)), 4);
  [prefix, text, ...views].forEach(write);
}

// The tensors of each case, made of the data of a message. cases: lists of {name, type, dims, bytes}.
function tensorsOf(cases, data) {
  let place = 0;
  return cases.map((tensors) => Object.fromEntries(tensors.map(({ name, type, dims, bytes }) => {
    const start = data.byteOffset + place;
    place += bytes;
    return [name, new ort.Tensor(type, new ARRAYS[type](data.buffer.slice(start, start + bytes)), dims)];
  })));
}

// The smallest difference between two readings of the clock, in seconds.
function resolution() {
  let least = Infinity;
  for (let i = 0; i < CLOCKED; i++) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    least = Math.min(least, now - start);
  }
  return least / 1000;
}

const requests = {
  // Open a session. path: of a file; '' for a graph in the data. external: files of its external data. unused: sessions to close.
  async open({ path, level, external, unused }, data) {
    for (const each of unused) {
      await sessions.get(each)?.release();
      sessions.delete(each);
    }
    const session = await ort.InferenceSession.create(path ? readFileSync(path) : data, {
      executionProviders: ['wasm'],
      graphOptimizationLevel: level,
      logSeverityLevel: 3,
      ...(external.length ? { externalData: external } : {}),
    });
    sessions.set(++opened, session);
    const values = (found) => found.map(({ name, isTensor, type, shape }) => ({ name, isTensor, type, shape }));
    send({ session: opened, inputs: values(session.inputMetadata), outputs: values(session.outputMetadata) });
  },

  // Compute pieces of calls on the cases in turn. Returns the seconds of each piece, and the outputs of the last call.
  async run({ session, outputs, cases, calls, pieces }, data) {
    const model = sessions.get(session);
    const feeds = tensorsOf(cases, data);
    const edges = [performance.now()];
    let found;
    for (let piece = 0, done = 0; piece < pieces; piece++) {
      for (let call = 0; call < calls; call++, done++) found = await model.run(feeds[done % feeds.length], outputs);
      edges.push(performance.now());
    }
    const seconds = edges.slice(1).map((end, i) => (end - edges[i]) / 1000);
    if (ort.env.wasm.numThreads > 1 && edges.at(-1) - edges[0] > SPINS * 1000) {
      await new Promise((resolve) => setTimeout(resolve, REST));
    }
    send({ seconds }, Object.fromEntries(outputs.map((name) => [name, found[name]])));
  },
};

send({ node: process.version, version: ort.env.versions.web, resolution: resolution() });
for (;;) {
  const prefix = read(PREFIX);
  if (prefix === null) break;
  const header = JSON.parse(read(prefix.readUInt32LE(0)).toString());
  const data = read(Number(prefix.readBigUInt64LE(4)));
  try {
    await requests[header.request](header, data);
  } catch (error) {
    send({ error: String(error?.message ?? error) });
  }
}
process.exit(0);
