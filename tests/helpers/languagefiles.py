"""ONNX files of a tiny BERT and a tiny Llama, as ONNX Runtime's optimizer and its quantiser of few bits write them, and faults."""

import logging
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path

import torch
from xverify.frameworks.torch.torchvision import declare_torchvision_ops

declare_torchvision_ops(torch)
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

place, generator = Path(sys.argv[1]), torch.Generator().manual_seed(0)
sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
         "max_position_embeddings": 32, "attn_implementation": "eager"}


class Plain(torch.nn.Module):
    def __init__(self, model, settings):
        super().__init__()
        self.model, self.settings = model.eval(), settings
        for name, each in model.named_parameters():
            drawn = torch.randn(each.shape, generator=generator)
            norm = each.dim() == 1 and "norm" in name.lower() and "weight" in name
            columns = torch.exp(0.7 * torch.randn(each.shape[-1], generator=generator))  # as after training: blocks differ
            each.data = 1 + 0.1 * drawn if norm else drawn if "embed" in name.lower() else 0.02 * columns * drawn

    def forward(self, input_ids, attention_mask):
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **self.settings}
        return self.model(**given, return_dict=False)[0]


models = {
    "bert": Plain(BertModel(BertConfig(**sizes), add_pooling_layer=False), {}),
    "llama": Plain(LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=2)), {"use_cache": False}),
}
inputs = torch.randint(0, 64, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
names = ["input_ids", "attention_mask"]
for name, model in models.items():
    axes = {each: {0: "batch", 1: "tokens"} for each in (*names, "output")}
    torch.onnx.export(model, inputs, place / f"{name}.onnx", input_names=names, output_names=["output"], dynamic_axes=axes,
                      opset_version=17, dynamo=False)
"""
MODELS = ("bert", "llama")
OPTIMISED = {"float32": {}, "float16": {"half": True}, "mixed": {"half": True, "keep_io_types": True}}
INT4 = {
    "zero points": {"block_size": 16, "is_symmetric": False},
    "symmetric": {"block_size": 32, "is_symmetric": True, "accuracy_level": 4},
    "tables": {
        "block_size": 16,
        "is_symmetric": False,
        "op_types_to_quantize": ("MatMul", "Gather"),
        "quant_axes": (("MatMul", 0), ("Gather", 1)),
    },
}


def written(place: Path) -> Path:
    """The folder, with ``bert.onnx`` and ``llama.onnx`` as torch exports them."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT, str(place)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return place


def optimised(plain: Path, target: Path, half: bool = False, **settings) -> Path:
    """A file as the optimizer of ONNX Runtime writes it for transformers, in float32 or float16."""
    from onnxruntime.transformers import optimizer

    logging.disable(logging.INFO)
    model = optimizer.optimize_model(
        str(plain), model_type="bert" if plain.stem == "bert" else "gpt2", num_heads=4, hidden_size=64
    )
    if half:
        model.convert_float_to_float16(**settings)
    model.save_model_to_file(str(target))
    return target


def int4(plain: Path, target: Path, **settings) -> Path:
    """A file whose matrices, or tables too, have 4 bits a value, except for the matrix that makes the scores of all words."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    logging.disable(logging.INFO)
    work = MatMulNBitsQuantizer(onnx.load(plain), bits=4, nodes_to_exclude=["/model/lm_head/MatMul"], **settings)
    work.process()
    work.model.save_model_to_file(str(target))
    return target


def grouped(target: Path, half: bool = False, **attributes) -> Path:
    """A file of one layer of attention between two norms, as the builder of onnxruntime-genai writes it.

    half: whether its weights, its cache and its values are in float16; the norms are in float32 then, as of Gemma, between Casts.
    attributes: of the attention.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(0)
    angles = np.arange(32)[:, None] * 10.0 ** -np.arange(0, 4, 0.5)
    arrays = {
        "table": random.standard_normal((64, 64)),
        "qkv": 0.15 * random.standard_normal((64, 128)),
        "out": 0.15 * random.standard_normal((64, 64)),
        "head": 0.15 * random.standard_normal((64, 64)),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
    }
    dtype = np.float16 if half else np.float32
    constants = [numpy_helper.from_array(each.astype(dtype), name) for name, each in arrays.items()]
    constants += [
        numpy_helper.from_array(1 + 0.1 * random.standard_normal(64).astype(np.float32), f"norm{i}") for i in (1, 2)
    ]
    constants += [
        numpy_helper.from_array(np.array(value, np.int64), name) for name, value in (("one", 1), ("axis", [1]))
    ]
    node, kinds = helper.make_node, onnx.TensorProto

    def cast(name: str, to: int) -> list:
        return [node("Cast", [name], [f"{name} cast"], f"{name}/Cast", to=to)] if half else []

    end = " cast" if half else ""
    shared = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": 0, "scale": 0.25}
    nodes = [
        node("Gather", ["table", "input_ids"], ["x"], "embedding"),
        *cast("x", kinds.FLOAT),
        node("SimplifiedLayerNormalization", [f"x{end}", "norm1"], ["normed"], "norm", axis=-1, epsilon=1e-6, stash_type=1),
        *cast("normed", kinds.FLOAT16),
        node("ReduceSum", ["attention_mask", "axis"], ["counted"], "counted", keepdims=0),
        node("Sub", ["counted", "one"], ["last"], "last"),
        node("Cast", ["last"], ["seqlens_k"], "seqlens_k", to=kinds.INT32),
        node("Shape", ["attention_mask"], ["shape"], "shape"),
        node("Gather", ["shape", "one"], ["width"], "width", axis=0),
        node("Cast", ["width"], ["total"], "total", to=kinds.INT32),
        node("MatMul", [f"normed{end}", "qkv"], ["projected"], "qkv_proj"),
        node(
            "GroupQueryAttention",
            ["projected", "", "", "past_key_values.0.key", "past_key_values.0.value", "seqlens_k", "total", "cos", "sin"],
            ["attended", "present.0.key", "present.0.value"], "attention", domain="com.microsoft", **shared | attributes,
        ),
        node("MatMul", ["attended", "out"], ["made"], "o_proj"),
        *cast("made", kinds.FLOAT),
        node(
            "SkipSimplifiedLayerNormalization", [f"x{end}", f"made{end}", "norm2"], ["last norm"], "last norm",
            domain="com.microsoft", epsilon=1e-6,
        ),
        *cast("last norm", kinds.FLOAT16),
        node("MatMul", [f"last norm{end}", "head"], ["logits"], "lm_head"),
    ]  # fmt: skip
    cache, real = ["batch", 2, "past", "size"], kinds.FLOAT16 if half else kinds.FLOAT
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layer",
        [
            value("input_ids", kinds.INT64, ["batch", "tokens"]),
            value("attention_mask", kinds.INT64, ["batch", "total"]),
            *(value(f"past_key_values.0.{each}", real, cache) for each in ("key", "value")),
        ],
        [
            value("logits", real, ["batch", "tokens", 64]),
            *(value(f"present.0.{each}", real, ["batch", 2, "total", "size"]) for each in ("key", "value")),
        ],
        constants,
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), target)
    return target


def changed(source: Path, target: Path, op: str, change) -> str:
    """Write a copy in which the last node of an operator is changed. Returns its name.

    change: a function of the node and a dictionary of the arrays of the file by name, which it changes.
    """
    import onnx
    from onnx import numpy_helper

    model = onnx.load(source)
    node = [each for each in model.graph.node if each.op_type == op][-1]
    arrays = {each.name: numpy_helper.to_array(each).copy() for each in model.graph.initializer}
    before = {name: array.copy() for name, array in arrays.items()}
    change(node, arrays)
    for each in model.graph.initializer:
        if (arrays[each.name] != before[each.name]).any():
            each.CopyFrom(numpy_helper.from_array(arrays[each.name], each.name))
    onnx.save(model, target)
    return node.name


def attribute(name, value):
    """A change of an attribute."""
    from onnx import helper

    def change(node, arrays):
        for each in [each for each in node.attribute if each.name == name]:
            node.attribute.remove(each)
        node.attribute.append(helper.make_attribute(name, value))

    return change


def array(place, alter):
    """A change of the array of an input, by a function of it."""

    def change(node, arrays):
        arrays[node.input[place]] = alter(arrays[node.input[place]])

    return change
