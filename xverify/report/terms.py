"""What the terms of a report mean, each in a sentence or two, with which the entry of docs/glossary.md begins."""

from __future__ import annotations

RHO = "The error of an output / the error that rounding explains. Up to 3 is EQUAL."
RATE = "Items that are computed in a second, with the 95% interval. A figure that is struck out does not count."
# Term -> its meaning. The titles of columns are among them.
TERMS: dict[str, str] = {
    "FPS": RATE,
    "subject": "One framework in one mode, written torch:eager; in a check, one file in one runtime.",
    "file": "One model file in one runtime.",
    "question": "What a row of a check answers. runtime: does the runtime compute what the file says? "
    "conversion: does the file say what the reference says?",
    "verdict": "IDENTICAL, EQUAL, DRIFT, UNTESTED, DIFFERENT or INVALID; or why there is none.",
    "IDENTICAL": "The same as the reference's float32 outputs to the last bit.",
    "EQUAL": "Different from the reference by rounding alone.",
    "DRIFT": "More than rounding explains, and less than a fault makes: a warning.",
    "UNTESTED": "Nothing was compared that could have shown a fault.",
    "DIFFERENT": "Another computation than the reference's.",
    "INVALID": "Not comparable: another shape, NaN or other weights.",
    "noise floor": "What rounding can make of a value, a tensor or an output. It is measured.",
    "residual": "The difference from the exact value.",
    "R": "Residual / noise floor of a tensor of a layer. Up to 4 is EQUAL.",
    "C": "Residual / noise floor of the worst group of values of a layer. Up to 15 is EQUAL.",
    "ρ": RHO,
    "residual / noise floor": RHO,
    "residual / float32's": "The error / that of the reference's own float32 run. Up to 10 is EQUAL.",
    "detection limit": "The smallest relative error that would not have been EQUAL.",
    "relative error": "Root mean square (rms) of the error / that of the reference, of the worst output.",
    "mean |Δ|": "Mean absolute error.",
    "max |Δ|": "Largest absolute error.",
    "layers": "How many layers were judged one by one, of how many; or how many differ.",
    "nodes": "How many nodes of the file were judged one by one, of how many; or how many differ.",
    "time ratio": "The time of this row / that of the first row, paired by round. Above 1 is slower.",
    "speed": "Whether it is faster than the first row.",
    "peak MiB": "Largest resident memory of the process.",
    "precision": "The type of the weights, and of the arithmetic.",
    "SQNR dB": "Power of the reference / power of the difference, in decibels. More is better.",
    "cosine": "Cosine of the angle between the outputs, the smallest over items.",
    "top-1": "Share of the inputs with the reference's best class: agreement with the reference, and no accuracy.",
    "top-5": "Share of the inputs whose best class is among the reference's best five: agreement, and no accuracy.",
    "KL": "Divergence of the class probabilities from the reference's, in nats.",
    "share": "Part of the power of all errors of quantisation.",
    "outputs dB": "Outputs / the error in them when this layer alone is quantised. More is better.",
    "own result dB": "Result of the layer / the error in it, in decibels.",
    "scale": "How many times larger the scale of the weights is than their values need.",
}
VERDICTS = ("IDENTICAL", "EQUAL", "DRIFT", "UNTESTED", "DIFFERENT", "INVALID")
ALWAYS = ("noise floor", "residual", "R", "C", "ρ", "detection limit")  # in every legend


def meaning(term: str) -> str:
    """What a term or the title of a column means; "" where it speaks for itself."""
    return RATE if "(95% interval)" in term else TERMS.get(term.partition(" at ")[0], "")


def legend(titles: tuple[str, ...]) -> dict[str, str]:
    """The terms of a page with their meanings. titles: of its columns."""
    terms = dict.fromkeys((*titles, *VERDICTS, *ALWAYS))
    return {term: meaning(term) for term in terms if meaning(term)}
