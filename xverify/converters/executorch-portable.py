"""ExecuTorch programs for its portable kernels, without a backend."""

from xverify.converters.executorch import Adapter as WithXnnpack
from xverify.frameworks.executorch import runtime


class Adapter(WithXnnpack):
    name = "executorch-portable"
    title = "ExecuTorch program for portable kernels"
    suffixes = ()
    backend = runtime.PORTABLE
