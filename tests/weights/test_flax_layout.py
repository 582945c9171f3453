"""The layouts of Flax's variables, without Flax: every conversion and its inverse."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xverify.weights import flax
from xverify.weights.flax_layout import NamedWeight, Part, canonical_shape, from_canonical, join, split, to_canonical


@st.composite
def layouts(draw):
    """(axes, flipped, shape): an order of axes, of which neighbours are merged, and a shape that it fits."""
    count = draw(st.integers(0, 5))
    order = draw(st.permutations(range(count)))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, count - 1)), max_size=3)) & set(range(1, count)))
    groups = [tuple(order[begin:end]) for begin, end in zip([0, *cuts], [*cuts, count])]
    axes = tuple(group[0] if len(group) == 1 and draw(st.booleans()) else group for group in groups)
    return (
        draw(st.sampled_from([axes, None])),
        draw(st.booleans()),
        tuple(draw(st.integers(1, 4)) for _ in range(count)),
    )


def numbered(shape):
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@given(layouts())
def test_every_layout_is_converted_and_converted_back(layout):
    axes, flipped, shape = layout
    array = numbered(shape)
    canonical = to_canonical(array, axes, flipped)
    assert canonical.shape == canonical_shape(axes, shape)
    assert canonical.flags["C_CONTIGUOUS"]
    back = from_canonical(canonical, axes, flipped, shape)
    assert back.shape == shape
    assert np.array_equal(back, array)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4), st.integers(1, 5))
def test_concatenated_variables_are_joined_and_split(sizes, inputs):
    arrays = [np.random.default_rng(0).random((inputs, *size)).astype(np.float32) for size in sizes]
    weight = NamedWeight("in_proj_weight", tuple(Part(str(index), None, ((1, 2), 0)) for index in range(len(sizes))))
    joined = join(weight, arrays)
    assert joined.shape == (sum(heads * size for heads, size in sizes), inputs)
    parts = split(weight, joined, [array.shape for array in arrays])
    assert all(np.array_equal(part, array) for part, array in zip(parts, arrays))


def entry(kind, variable, shape, **settings):
    """(suffix, canonical array) of a variable that holds 0, 1, 2, ..., by the table of this kind of layer."""
    layer = SimpleNamespace(**settings)
    suffix, axes, *flipped = (
        flax.COMPUTED[kind](layer)[variable] if kind in flax.COMPUTED else flax.LAYERS[kind][variable]
    )
    return suffix, to_canonical(numbered(shape), axes, *flipped or [False])


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_kernels_of_convolutions_become_those_of_torch(dimensions):
    image = (2, 3, 4)[:dimensions]
    kernel = numbered((*image, 5, 6))
    suffix, found = entry("Conv", "kernel", kernel.shape, kernel_size=image)
    assert (suffix, found.shape) == ("weight", (6, 5, *image))
    assert found[(1, 2, *(1,) * dimensions)] == kernel[(*(1,) * dimensions, 2, 1)]
    # torch's transposed convolution reverses the image axes; Flax's does it with transpose_kernel only.
    plain = entry("ConvTranspose", "kernel", kernel.shape, kernel_size=image, transpose_kernel=False)[1]
    turned = entry("ConvTranspose", "kernel", kernel.shape, kernel_size=image, transpose_kernel=True)[1]
    assert plain.shape == (5, 6, *image)
    assert turned.shape == (6, 5, *image)
    assert plain[(2, 1, *(0,) * dimensions)] == kernel[(*(-1,) * dimensions, 2, 1)]
    assert turned[(1, 2, *(0,) * dimensions)] == kernel[(*(0,) * dimensions, 2, 1)]


def test_merged_axes_have_the_order_of_the_kernel():
    query, narrow = SimpleNamespace(in_features=(6,)), SimpleNamespace(in_features=(4,))
    suffix, found = entry("MultiHeadAttention", "query.kernel", (6, 2, 3), query=query, key=query)
    assert (suffix, found.shape) == ("in_proj_weight", (6, 6))
    assert np.array_equal(found, numbered((6, 6)).T)
    assert entry("MultiHeadAttention", "key.kernel", (4, 2, 3), query=query, key=narrow)[0] == "k_proj_weight"
    suffix, found = entry("MultiHeadAttention", "out.kernel", (2, 3, 6), query=query, key=query)
    assert suffix == "out_proj.weight"
    assert np.array_equal(found, numbered((6, 6)).T)
    general = {"in_features": (2, 3), "out_features": (4, 5), "batch_axis": {}}
    assert entry("LinearGeneral", "kernel", (2, 3, 4, 5), **general)[1].shape == (20, 6)
    assert entry("LinearGeneral", "bias", (4, 5), **general)[1].shape == (20,)
    assert entry("PReLU", "negative_slope", ())[1].shape == (1,)
