"""Several processes of torch that train one model: DistributedDataParallel, fully_shard, or what the model file makes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from xverify.errors import Failed, Unsupported, with_article
from xverify.framework.ranks import PARALLELIZE, DropoutDrawn, DropoutsDrawn, WeightsHeld
from xverify.framework.runner import Source
from xverify.weights.torch import divided_as
from xverify.workload.launch import HERE, look_up, unmet
from xverify.workload.ranks import OF_FILES

SEED = 0  # of the ranks that draw the same random numbers


def join(rank: int, count: int, meeting: str, seconds: float) -> None:
    """Make the default process group, of gloo. The environment variables are those that torchrun sets.

    Raises Failed when an address is not known or not reached.
    """
    import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_gloo_available()):
        raise Unsupported("this build of torch has no torch.distributed with gloo, which several ranks need")
    address = meeting.removeprefix("tcp://") if meeting.startswith("tcp://") else ""
    here = not address or address.rpartition(":")[0] in HERE
    if meeting != "env://":
        local = {"LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count}
        own = {"RANK": rank, "WORLD_SIZE": count, **(local if here else {})}
        os.environ.update({name: str(value) for name, value in own.items()})
    if here and sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the name of the machine may have no address
    limit = timedelta(seconds=seconds)
    if not address:
        distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=count, timeout=limit)
        return
    look_up(address)
    host, _, port = address.rpartition(":")
    try:
        # torch may try for twice as long to reach an address.
        store = distributed.TCPStore(host.strip("[]"), int(port), count, rank == 0, limit / 2)
    except distributed.DistNetworkError as error:
        raise Failed(unmet(address, str(error))) from None
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=count, timeout=limit)


def parallelize(model: Any, plan: str, source: Source) -> Any:
    """The model that a rank trains. It has the parameters of ``model``, under the same names there."""
    from torch.distributed import get_world_size
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (get_world_size(),), mesh_dim_names=("ranks",))
    if plan in OF_FILES:
        return _by_file(model, mesh, plan, source)
    if plan == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard
    from torch.nn import ModuleList

    for blocks in [each for each in model.modules() if isinstance(each, ModuleList)]:
        for block in blocks:
            fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _by_file(model: Any, mesh: Any, plan: str, source: Source) -> Any:
    """What ``parallelize`` of the model file makes of a model. Raises Failed when it is of no use."""
    place = f"{source.folder / source.title}"
    function = getattr(source.loaded(), PARALLELIZE, None)
    if not callable(function):
        raise Failed(
            f"{place} defines no {PARALLELIZE}(model, mesh), which --plan {plan} calls; it returns the model of a rank"
        )
    before = {name: each.shape for name, each in model.named_parameters()}
    made = function(model, mesh)
    if not callable(made):
        raise Failed(
            f"{place}: {PARALLELIZE} returns {with_article(type(made).__name__)}: return the model that a rank trains"
        )
    after = {name: each.shape for name, each in model.named_parameters()}
    if before != after:
        odd = next(name for name in {**before, **after} if before.get(name) != after.get(name))
        shapes = " to ".join(
            "nothing" if each is None else str(tuple(each)) for each in (before.get(odd), after.get(odd))
        )
        raise Failed(f"{place}: {PARALLELIZE} changes {odd} from {shapes}: keep parameters, or make DTensors of them")
    own = {id(each) for each in model.parameters()}
    if hasattr(made, "parameters") and {id(each) for each in made.parameters()} != own:
        raise Failed(f"{place}: {PARALLELIZE} returns a model with other parameters than the one that it is given")
    return made


@dataclass
class Seeding:
    """Whether ``parallelize`` draws random numbers or sets a seed: xverify then leaves the random numbers of a rank as they are."""

    of_file: bool = False


@contextmanager
def seeds(plan: str) -> Iterator[Seeding]:
    """Within the context, a model is made parallel. Ranks begin with one seed where each has the whole batch."""
    import torch
    from torch.distributed import get_rank

    torch.manual_seed(SEED + (get_rank() if plan != "tp" else 0))
    before, seeding = torch.get_rng_state(), Seeding()
    yield seeding
    seeding.of_file = not torch.equal(before, torch.get_rng_state())


def loaded(model: Any) -> dict[str, Any]:
    """The weights and running statistics of a model, which every step is given anew; see weights.torch.OfModel."""
    return {name: each.detach() for name, each in model.state_dict().items() if each.is_floating_point()}


def weights_held(model: Any, given: Mapping[str, Any]) -> WeightsHeld:
    """What this rank has of the weights. given: a copy of ``loaded`` before ``parallelize``."""
    import torch

    held = WeightsHeld()
    for name, tensor in loaded(model).items():
        own, placements = _local(tensor), getattr(tensor, "placements", ())
        if any(each.is_partial() for each in placements) or name not in given or not own.numel():
            continue
        if all(each.is_replicate() for each in placements):
            held.whole[name] = _digest(own)
        elif (part := divided_as(given[name], tensor).to_local()).shape == own.shape:
            held.changed[name] = not torch.equal(part, own)
    return held


def draw_dropouts(
    model: Any, called: Any, inputs: tuple[Any, ...], rates: Mapping[str, float], seeding: Seeding
) -> DropoutsDrawn:
    """What dropout layers draw on this rank in two forward passes. called: what a training step calls. rates: layer -> rate."""
    import torch
    from torch.distributed import get_rank

    from xverify.frameworks.torch.functional_dropout import switched_on

    layers = {model.get_submodule(name): name for name in rates}
    drawn: list[list[DropoutDrawn]] = []
    calls = Counter[str]()

    def watch(layer: Any, given: tuple[Any, ...], output: Any) -> None:
        name, (start, of_input) = layers[layer], begun.pop(layer)
        after = torch.get_rng_state()
        torch.set_rng_state(start)
        dropped = layer.forward(torch.ones_like(_local(given[0]))) == 0
        torch.set_rng_state(after)
        drawn[-1].append(DropoutDrawn(name, calls[name], of_input, _digest(dropped), int(dropped.sum())))
        calls[name] += 1

    def begin(layer: Any, given: tuple[Any, ...]) -> None:
        begun[layer] = torch.get_rng_state(), _digest(_local(given[0]))  # a layer may work in place

    begun: dict[Any, tuple[Any, str]] = {}
    modes = {layer: layer.training for layer in layers}
    hooks = [
        each
        for layer in layers
        for each in (layer.register_forward_pre_hook(begin), layer.register_forward_hook(watch))
    ]
    try:
        for layer, name in layers.items():
            layer.p = rates[name]
            layer.train()
        for seed in (SEED, SEED + get_rank()):
            if not seeding.of_file:
                torch.manual_seed(seed)
            drawn.append([])
            calls.clear()
            with torch.no_grad(), switched_on():
                called(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for layer, mode in modes.items():
            layer.p = 0.0
            layer.train(mode)
    return DropoutsDrawn(*map(tuple, drawn))


def _digest(tensor: Any) -> str:
    """A digest of the shape and the values. NumPy has no bfloat16, and float32 holds all its values."""
    return hashlib.sha256(f"{tuple(tensor.shape)}".encode() + tensor.float().numpy().tobytes()).hexdigest()


def _local(tensor: Any) -> Any:
    """What this rank has of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
