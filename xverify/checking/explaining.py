"""Why a conversion is wrong: by the weights of both files, the first node that computes something else, and the axes of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import host
from ..errors import Failed, NotInstalled, SubjectError, Unsupported
from ..messages.files import ReadWeights
from ..messages.graph import FindUnlike
from ..processes.worker import Worker
from ..results.verdicts import Verdict
from ..weights import npz
from ..weights.findings import sentences
from ..weights.relations import Relation, relate
from ..weights.steps import beyond_steps
from ..weights.stored import Stored
from ..weights.unlike import unlike
from .axes import turned_inputs
from .candidate import Context, Target
from .computing import INPUTS, Cases, Computed
from .graphs import Calls, Side, divergence
from .judge import Judged
from .precision import compares_steps
from .subject import Opened

WEIGHTS = "weights.npz"  # the file of the weights, in the folder of a worker
COPIES = 4  # arrays as large as a file's weights that comparing them needs: two files, in two precisions
SPECIAL = ("zeros", "alternating")  # kinds of cases in which many values are equal by chance
SHOWN = 3  # sentences on weights that a reason has
PRECISIONS = {"rounded": 0.02, "quantised": 0.2}  # kind of relation -> relative difference of values that it explains


def explained(
    context: Context,
    judged: Judged,
    opened: Opened,
    computed: Computed,
    target: Target,
    graphs: Worker | None,
    quantised: bool,
) -> Judged:
    """The answer on a conversion with what is known about its cause, where it is wrong.

    target: the reference. graphs: the worker that evaluates ONNX graphs. quantised: whether the file has quantised values.
    """
    file, against = Side(opened, computed.inputs), target.opened
    if against is not None:
        passes = quantised and not compares_steps(opened, against) and not judged.error.verdict.fails
        if judged.unmodelled or passes:
            return _beyond_steps(judged, opened, against)
    if not judged.error.verdict.fails:
        return judged
    found = list(turned_inputs(opened, computed, target.meaning))
    relations: list[Relation] = []
    if against is not None:
        weights, relations = _weights(opened, against, quantised)
        found += weights
    reference = Side(against, against.worker.folder / INPUTS) if against is not None else target.calls
    if reference is not None:
        found += _divergence(context, judged, file, reference, computed, target.cases, relations, graphs)
    reason = "; ".join([*found, *([judged.error.reason] if judged.error.reason else [])])
    return replace(judged, error=replace(judged.error, reason=reason or None))


def with_other_weights(judged: Judged, opened: Opened, target: Target, graphs: Worker | None) -> Judged:
    """The answer on a conversion, which is DIFFERENT where a weight has other values that no input case shows.

    target: the reference. Quantised files are left out by the caller: their numbers are not the reference's.
    """
    if judged.error.verdict.fails:
        return judged
    against, source = target.opened, target.source
    reference = against.graph if against is not None else source.prepared.weights if source is not None else None
    try:
        if graphs is not None and opened.graph is not None and reference is not None:
            says = graphs.ask(FindUnlike(str(opened.graph), str(reference)))
        elif against is not None:
            says = tuple(unlike(stored_weights(opened).arrays, stored_weights(against).arrays))
        else:
            return judged
    except SubjectError as error:  # the outputs are judged all the same
        untold = graphs is None or isinstance(error, (Unsupported, NotInstalled))
        return judged if untold else replace(judged, notes=(*judged.notes, f"its weights were not compared: {error}"))
    if not says:
        return judged
    more = [f"and {len(says) - SHOWN} more weights"] if len(says) > SHOWN else []
    told = f"other weights, in places that no input case shows: {'; '.join([*says[:SHOWN], *more])}"
    reason = "; ".join(filter(None, [told, judged.error.reason]))
    return replace(judged, error=replace(judged.error, verdict=Verdict.DIFFERENT, reason=reason))


def stored_weights(opened: Opened) -> Stored:
    """The weights that an opened file stores. Raises SubjectError."""
    path = opened.worker.folder / WEIGHTS
    reply = opened.worker.ask(ReadWeights(str(path)))
    if path.stat().st_size * COPIES > host.available_memory():
        raise Failed(f"{opened.label}: there is not enough memory to compare its weights")
    return Stored(npz.load_file(path), reply.norms, reply.quantised, reply.places)


def _weights(file: Opened, reference: Opened, quantised: bool) -> tuple[list[str], list[Relation]]:
    """(sentences on weights that no correct conversion gives, all relations)."""
    by_steps = quantised and compares_steps(file, reference)
    if by_steps and not file.is_onnx:  # its constants are whole numbers, and its biases are corrected
        return [], []
    try:
        mine, theirs = stored_weights(file), stored_weights(reference)
    except SubjectError:
        return [], []  # the outputs are judged all the same
    relations = relate(mine, theirs)
    known = [each for each in relations if each.kind not in ("extra", "missing")]
    if not known:
        return [], []
    told = [each for each in relations if not (by_steps and each.kind in ("missing", "quantised"))]
    says = sentences(told, mine, theirs)
    more = [f"and {len(says) - SHOWN} more differences between the weights"] if len(says) > SHOWN else []
    return [*says[:SHOWN], *more], relations


def _beyond_steps(judged: Judged, file: Opened, reference: Opened) -> Judged:
    """The answer where rounding may explain what differs: DIFFERENT when a weight is one that no rounding gives."""
    try:
        mine, theirs = stored_weights(file), stored_weights(reference)
    except SubjectError:
        return judged
    says = list(beyond_steps(relate(mine, theirs), mine, theirs))
    if not says:
        return judged
    more = [f"and {len(says) - SHOWN} more weights"] if len(says) > SHOWN else []
    reason = "; ".join([*says[:SHOWN], *more, *([judged.error.reason] if judged.error.reason else [])])
    return replace(judged, error=replace(judged.error, verdict=Verdict.DIFFERENT, reason=reason))


def _divergence(
    context: Context,
    judged: Judged,
    file: Side,
    reference: Side | Calls,
    computed: Computed,
    cases: Cases,
    relations: Sequence[Relation],
    graphs: Worker | None,
) -> list[str]:
    """Where the graph of the file begins to compute something else than the reference, a file or a model.

    The first case that differs tells it: random inputs come first, and zeros, for example, hide what they are multiplied with.
    """
    away = [each.case for each in judged.error.tensors if each.verdict is not None and each.verdict.fails]
    coarse = max((PRECISIONS.get(each.kind, 0.0) for each in relations), default=0.0)
    case, turned = min(away, default=0), computed.is_turned
    general = cases.kinds[case] not in SPECIAL
    try:
        return divergence(context, file, reference, computed.names, case, turned, coarse, general, graphs)
    except SubjectError:
        return []
