"""onnxruntime-web with a planted fault: a package that stands in the place of the real one, in the folder of a test."""

import json
import shutil

import pytest

from xverify.environments import store
from xverify.framework import discovery

WEB = discovery.load("onnxruntime-web")
NEEDS_WEB = pytest.mark.skipif(
    store.chosen(WEB) is None, reason=f"onnxruntime-web is not installed; type: {store.remedy(WEB)}"
)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

# The kernel of one node computes another operator, whose name is as long. As in the bytes of an ONNX file, a name and then the
# operator follow the number of their field and their length.
WRONG_KERNEL = """
const real = require({real});
const [name, right, wrong] = {fault};
const bytes = (operator) => Buffer.concat([[0x1a, name], [0x22, operator]].map(
  ([field, text]) => Buffer.from([field, text.length, ...Buffer.from(text)])));
const create = (graph, options) => {{
  const changed = Buffer.from(graph), place = changed.indexOf(bytes(right));
  if (place >= 0) bytes(wrong).copy(changed, place);
  return real.InferenceSession.create(changed, options);
}};
module.exports = {{ ...real, InferenceSession: {{ create }} }};
"""
# The process is killed when it is asked to compute.
KILLED = """
const real = require({real});
const create = async (graph, options) => {{
  const session = await real.InferenceSession.create(graph, options);
  session.run = () => process.kill(process.pid, 'SIGKILL') && new Promise(() => {{}});
  return session;
}};
module.exports = {{ ...real, InferenceSession: {{ create }} }};
"""
# Its clock goes on by 5 ms whenever it is read.
TICKING = """
let now = 0;
performance.now = () => (now += 5);
module.exports = require({real});
"""
# The same in a page.
WRONG_IN_PAGE = """
import * as real from './real.mjs';
export * from './real.mjs';
const [name, right, wrong] = {fault};
const bytes = (operator) => [[0x1a, name], [0x22, operator]].flatMap(
  ([field, text]) => [field, text.length, ...new TextEncoder().encode(text)]);
const create = (graph, options) => {{
  const place = graph.findIndex((_, i) => bytes(right).every((each, k) => graph[i + k] === each));
  if (place >= 0) graph.set(bytes(wrong), place);
  return real.InferenceSession.create(graph, options);
}};
export const InferenceSession = {{ create }};
"""
# The device is lost before the first call.
LOST_IN_PAGE = """
import * as real from './real.mjs';
export * from './real.mjs';
const create = async (graph, options) => {{
  const session = await real.InferenceSession.create(graph, options), run = session.run.bind(session);
  session.run = async (...given) => {{
    (await real.env.webgpu.device).destroy();
    return run(...given);
  }};
  return session;
}};
export const InferenceSession = {{ create }};
"""
PLUGIN = """
from pathlib import Path
from xverify.framework import {kind}

class Adapter({kind}.load({right!r})):
    name = runtime = "wrongweb"
    modules = Path({modules!r})
"""


def modules_with(folder, program, fault=()):
    """Write a folder node_modules whose onnxruntime-web is the real one with a fault, and return its path."""
    package = folder / "node_modules" / "onnxruntime-web"
    package.mkdir(parents=True)
    real = store.chosen(WEB).folder / "node_modules" / "onnxruntime-web"
    text = program.format(real=json.dumps(str(real)), fault=json.dumps(list(fault)))
    if program in (WRONG_IN_PAGE, LOST_IN_PAGE):
        (package / "dist").mkdir()
        for file in (real / "dist").iterdir():
            name = "real.mjs" if file.name == "ort.webgpu.min.mjs" else file.name
            (package / "dist" / name).symlink_to(file)
        (package / "dist" / "ort.webgpu.min.mjs").write_text(text)
    else:
        (package / "package.json").write_text('{"main": "index.js"}')
        (package / "index.js").write_text(text)
    return package.parent


def plant(folder, monkeypatch, modules, right="onnx-wasm"):
    """Let ``--on wrongweb`` run ONNX files with these modules, or a subject ``wrongweb:wasm`` be computed with them.

    right: the format, or the framework, without the fault. Returns the folder of the adapter.
    """
    plugins = folder / "plugins"
    plugins.mkdir()
    kind = "discovery" if right == WEB.name else "formats"
    (plugins / "wrongweb.py").write_text(PLUGIN.format(kind=kind, right=right, modules=str(modules)))
    if kind == "formats":
        monkeypatch.setenv("XVERIFY_FORMATS", str(plugins))
    return plugins
