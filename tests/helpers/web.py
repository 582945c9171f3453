"""onnxruntime-web with a planted fault: a package that stands in the place of the real one, in the folder of a test."""

import json

import pytest

from xverify.environments import store
from xverify.framework import discovery

WEB = discovery.load("onnxruntime-web")
NEEDS_WEB = pytest.mark.skipif(
    store.chosen(WEB) is None, reason=f"onnxruntime-web is not installed; type: {store.remedy(WEB)}"
)

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
PLUGIN = """
from pathlib import Path
from xverify.framework import formats

class Adapter(formats.load("onnx-wasm")):
    name = runtime = "wrongweb"
    modules = Path({modules!r})
"""


def modules_with(folder, program, fault=()):
    """Write a folder node_modules whose onnxruntime-web is the real one with a fault, and return its path."""
    environment = store.chosen(WEB)
    package = folder / "node_modules" / "onnxruntime-web"
    package.mkdir(parents=True)
    real = json.dumps(str(environment.folder / "node_modules" / "onnxruntime-web"))
    (package / "package.json").write_text('{"main": "index.js"}')
    (package / "index.js").write_text(program.format(real=real, fault=json.dumps(list(fault))))
    return package.parent


def plant(folder, monkeypatch, modules):
    """Let ``--on wrongweb`` run ONNX files with these modules."""
    plugins = folder / "plugins"
    plugins.mkdir()
    (plugins / "wrongweb.py").write_text(PLUGIN.format(modules=str(modules)))
    monkeypatch.setenv("XVERIFY_FORMATS", str(plugins))
