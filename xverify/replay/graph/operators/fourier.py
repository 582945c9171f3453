"""The short-time Fourier transform. onnx's own evaluator loops over the frames, and fails where there is a single one."""

from __future__ import annotations

from typing import Any

import numpy as np

from .registry import Call, operator


@operator("STFT")
def stft(call: Call, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """The transform of every frame, (batch, frames, bins, 2): real and imaginary parts."""
    size = int(np.reshape(length, ())) if length is not None else len(window)
    hop = int(np.reshape(step, ()))
    if signal.ndim == 3:
        signal = signal[..., 0] if signal.shape[-1] == 1 else signal[..., 0] + 1j * signal[..., 1]
    frames = np.lib.stride_tricks.sliding_window_view(signal, size, axis=-1)[:, ::hop]
    weighted = frames if window is None else frames * window
    onesided = call.get("onesided", 1) and not np.iscomplexobj(weighted)
    transformed = np.fft.rfft(weighted) if onesided else np.fft.fft(weighted)
    return np.stack([transformed.real, transformed.imag], -1).astype(signal.real.dtype)
