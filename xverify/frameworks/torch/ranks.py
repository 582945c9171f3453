"""Several processes of torch that train one model: DistributedDataParallel, fully_shard, or what the model file makes."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

from xverify.errors import Failed, Unsupported, with_article
from xverify.framework.ranks import PARALLELIZE
from xverify.framework.runner import Source
from xverify.workload.ranks import OF_FILES


def join(rank: int, count: int, meeting: str, seconds: float) -> None:
    """Make the default process group, of gloo. The environment variables are those that torchrun sets."""
    import torch.distributed as distributed

    if not (distributed.is_available() and distributed.is_gloo_available()):
        raise Unsupported("this build of torch has no torch.distributed with gloo, which several ranks need")
    here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(value) for name, value in here.items()})
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the name of the machine may have no address
    distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count, timeout=timedelta(seconds=seconds)
    )


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


def norms_apart(model: Any) -> list[str]:
    """The batch norms that use the items of their rank alone."""
    from torch.nn import SyncBatchNorm
    from torch.nn.modules.batchnorm import _BatchNorm

    return [
        name
        for name, each in model.named_modules()
        if isinstance(each, _BatchNorm) and not isinstance(each, SyncBatchNorm)
    ]
