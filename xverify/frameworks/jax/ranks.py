"""Several devices of JAX that train one model: the batch is divided among them, and XLA divides the computation.

One process has all devices, and the compiled step is that of one device: XLA adds the collective operations. On a CPU, one
processor stands for several devices.
"""

from __future__ import annotations

from typing import Any

from xverify.errors import Failed, Unsupported
from xverify.framework.ranks import PARALLELIZE
from xverify.framework.runner import Source

AXIS = "ranks"  # of the mesh


class Devices:
    """The devices of a run. mesh: with the axis AXIS. plan: a key of workload.ranks.PLANS."""

    def __init__(self, count: int, plan: str) -> None:
        """Make so many devices of the processor. No array may have been made before."""
        import jax
        import jax.extend.backend

        jax.extend.backend.clear_backends()
        jax.config.update("jax_num_cpu_devices", count)
        # Operations of all devices share the threads of the processor. When several are dispatched at once, each may hold a thread
        # and wait for another device in a collective operation, for ever.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
        if len(jax.devices()) < count:
            raise Unsupported(f"--ranks {count}: JAX has {len(jax.devices())} devices here")
        # In explicit mode, which is the default, JAX refuses computations whose division it cannot derive.
        axis_types = (jax.sharding.AxisType.Auto,)
        self.jax, self.count, self.plan = jax, count, plan
        self.mesh = jax.make_mesh((count,), (AXIS,), axis_types=axis_types)

    def _placed(self, array: Any, axis: int | None) -> Any:
        """An array divided along an axis; None: every device has the whole array."""
        parts = [None if place != axis else AXIS for place in range(array.ndim)]
        spec = self.jax.sharding.PartitionSpec(*parts)
        return self.jax.device_put(array, self.jax.sharding.NamedSharding(self.mesh, spec))

    def batch(self, array: Any) -> Any:
        """An array of a batch, divided along its first axis, but by the plan tp, which gives every device the whole batch."""
        divides = self.plan != "tp" and array.ndim and array.shape[0] % self.count == 0
        return self._placed(array, 0 if divides else None)

    def weight(self, array: Any) -> Any:
        """A weight. By the plan fsdp it is divided along its first axis whose size can be divided; others are whole."""
        fitting = [axis for axis, size in enumerate(array.shape) if size % self.count == 0 and size]
        return self._placed(array, fitting[0] if self.plan == "fsdp" and fitting else None)

    def by_file(self, model: Any, source: Source) -> None:
        """Let ``parallelize`` of the model file place the weights. Raises Failed when it is of no use."""
        place, function = f"{source.folder / source.title}", getattr(source.loaded(), PARALLELIZE, None)
        if not callable(function):
            raise Failed(
                f"{place} defines no {PARALLELIZE}(model, mesh), which --plan {self.plan} calls; it places the "
                "weights, and returns the model"
            )
        if function(model, self.mesh) is not model:
            raise Failed(f"{place}: {PARALLELIZE} must return the model that it is given")


def as_divided(array: Any, present: Any) -> Any:
    """A new array in the place of another one, divided among devices as that is, where several devices have it."""
    import jax

    return (
        jax.device_put(array, present.sharding) if isinstance(present.sharding, jax.sharding.NamedSharding) else array
    )
