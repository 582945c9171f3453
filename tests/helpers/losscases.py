"""Every named loss with its settings, and arrays to compute it of."""

import numpy as np

from xverify.workload.losses import Loss

NOISE = np.random.default_rng(0)
REDUCTIONS = ("mean", "sum", "none", "batchmean")


def real(*shape):
    return NOISE.normal(0, 2, shape)


def shares(*shape):
    return NOISE.uniform(0.1, 0.9, shape)


LABELS = NOISE.integers(0, 5, (4, 3))
SOME_IGNORED = np.where(NOISE.random((4, 3)) < 0.3, -100, LABELS)
SOME_IGNORED[0] = (-100, 1, 2)
WEIGHTS = (0.5, 1.0, 2.0, 0.0, 3.0)
# (loss, output, target, axis of the classes)
CASES = [
    (Loss("cross_entropy"), real(4, 3, 5), LABELS, -1),
    (Loss("cross_entropy", label_smoothing=0.1), real(4, 3, 5), LABELS, -1),
    (Loss("cross_entropy", ignore_index=-100), real(4, 3, 5), SOME_IGNORED, -1),
    (Loss("cross_entropy", ignore_index=2), real(4, 3, 5), LABELS, -1),
    (Loss("cross_entropy", class_weights=WEIGHTS), real(4, 3, 5), LABELS, -1),
    (
        Loss("cross_entropy", class_weights=WEIGHTS, ignore_index=-100, label_smoothing=0.2),
        real(4, 3, 5),
        SOME_IGNORED,
        -1,
    ),
    (Loss("cross_entropy", ignore_index=-100, label_smoothing=0.2), real(4, 5, 3), SOME_IGNORED, -2),
    (Loss("bce"), real(4, 3), shares(4, 3), -1),
    (Loss("bce"), real(4, 3), LABELS % 2, -1),
    (Loss("mse"), real(4, 3), real(4, 3), -1),
    (Loss("l1"), real(4, 3), real(4, 3), -1),
    (Loss("huber", delta=0.7), real(4, 3), real(4, 3), -1),
    (Loss("smooth_l1", beta=0.7), real(4, 3), real(4, 3), -1),
    (Loss("kl_div"), np.log(shares(4, 3)), np.array([0.0, 0.5, 0.5] * 4).reshape(4, 3), -1),
    (Loss("cosine"), real(4, 3), real(4, 3), -1),
    (Loss("contrastive", temperature=0.3), real(4, 3), real(4, 3), -1),
    (Loss("ctc"), real(2, 9, 5), np.array([[1, 1, 2], [4, 3, 2]]), -1),
]
