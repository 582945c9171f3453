// Opens and computes ONNX graphs with onnxruntime-web, in Node.js and in a page of a browser alike.
//
// A message is the number of bytes of its header (uint32) and of its data (uint64), in little endian, the header in JSON, and the
// data, which are the tensors or files that the header lists, one after another.

export const PREFIX = 12; // bytes of the two numbers
const SPINS = 20; // ms; after calls that took longer, threads of WebAssembly keep a core busy for up to 30 ms
const REST = 50; // ms until they sleep
const CLOCKED = 1000; // readings of the clock by which its resolution is measured
const ARRAYS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bool: Uint8Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
};

// A message as a list of arrays of bytes. parts: its data, in arrays of bytes.
export function pack(header, parts = []) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const prefix = new DataView(new ArrayBuffer(PREFIX));
  prefix.setUint32(0, text.length, true);
  prefix.setBigUint64(4, BigInt(parts.reduce((sum, each) => sum + each.length, 0)), true);
  return [new Uint8Array(prefix.buffer), text, ...parts];
}

// The sizes of the header and of the data of a message. bytes: its first PREFIX bytes.
export function sizes(bytes) {
  const prefix = new DataView(bytes.buffer, bytes.byteOffset);
  return [prefix.getUint32(0, true), Number(prefix.getBigUint64(4, true))];
}

// What the greeting says of onnxruntime-web and of the clock, whose resolution is the smallest difference of two readings, in seconds.
export function facts(ort) {
  let least = Infinity;
  for (let i = 0; i < CLOCKED; i++) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    least = Math.min(least, now - start);
  }
  return { version: ort.env.versions.web, resolution: least / 1000 };
}

// Answers requests. ort: the module onnxruntime-web. provider: "wasm" or "webgpu".
export class Graphs {
  constructor(ort, provider) {
    Object.assign(this, { ort, provider, sessions: new Map(), opened: 0, lost: '' });
  }

  // The answer to a message, as a message. data: bytes that nothing else uses.
  async answer(header, data) {
    try {
      return await this[header.request](header, data);
    } catch (error) {
      return pack({ error: String(error?.message ?? error) + this.lost });
    }
  }

  // Open a session. external: {path, bytes} of the files of external data, which follow the graph. unused: sessions to close.
  async open({ level, external, unused }, data) {
    for (const each of unused) {
      await this.sessions.get(each)?.release();
      this.sessions.delete(each);
    }
    let place = data.length - external.reduce((sum, each) => sum + each.bytes, 0);
    const graph = data.subarray(0, place);
    const externalData = external.map(({ path, bytes }) => ({ path, data: data.subarray(place, (place += bytes)) }));
    const session = await this.ort.InferenceSession.create(graph, {
      executionProviders: [this.provider],
      graphOptimizationLevel: level,
      logSeverityLevel: 3,
      ...(externalData.length ? { externalData } : {}),
    });
    this.sessions.set(++this.opened, session);
    const values = (found) => found.map(({ name, isTensor, type, shape }) => ({ name, isTensor, type, shape }));
    return pack({ session: this.opened, inputs: values(session.inputMetadata), outputs: values(session.outputMetadata) });
  }

  // Compute pieces of calls on the cases in turn. Returns the seconds of each piece, and the outputs of the last call.
  async run({ session, outputs, cases, calls, pieces }, data) {
    const model = this.sessions.get(session);
    const feeds = this.tensors(cases, data);
    const edges = [performance.now()];
    let found;
    for (let piece = 0, done = 0; piece < pieces; piece++) {
      for (let call = 0; call < calls; call++, done++) found = await model.run(feeds[done % feeds.length], outputs);
      edges.push(performance.now());
    }
    const seconds = edges.slice(1).map((end, i) => (end - edges[i]) / 1000);
    if (this.ort.env.wasm.numThreads > 1 && edges.at(-1) - edges[0] > SPINS) {
      await new Promise((resolve) => setTimeout(resolve, REST));
    }
    const parts = [];
    const tensors = outputs.map((name) => {
      const { type, dims, data: values } = found[name];
      if (!(type in ARRAYS)) throw new Error(`unsupported data type: ${type}`);
      parts.push(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
      return { name, type, dims, bytes: values.byteLength };
    });
    return pack({ seconds, tensors }, parts);
  }

  // The tensors of each case, made of the data of a message. cases: lists of {name, type, dims, bytes}.
  tensors(cases, data) {
    let place = data.byteOffset;
    return cases.map((tensors) => Object.fromEntries(tensors.map(({ name, type, dims, bytes }) => {
      const own = data.buffer.slice(place, (place += bytes));
      return [name, new this.ort.Tensor(type, new ARRAYS[type](own), dims)];
    })));
  }
}
