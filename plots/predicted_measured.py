"""Draws predicted against measured step times, with the band of the forecast and the errors."""

import sys
from collections.abc import Sequence

from inputs import Inputs, Json, measured_pairs
from matplotlib.figure import Figure

from style import (
    BLUE,
    LINES,
    VERMILLION,
    Nothing,
    caption,
    legend,
    main,
    need_result,
    plt,
    small_print,
    tidy,
    title,
)

AROUND = 0.10  # the grey strip around equality


def draw_suites(suites: Sequence[Json]) -> Figure:
    """Many cases of stepcast validate: over decades on the left, errors of each suite on the right."""
    tall = max(5.2, 2.4 + 0.42 * len(suites))
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, tall), layout="constrained")
    cases = [case for suite in suites for case in suite["cases"]]
    times = [case[key] for case in cases for key in ("predicted", "measured")]
    ends = [min(times) / 1.3, max(times) * 1.3]
    left.fill_between(ends, [e * (1 - AROUND) for e in ends], [e * (1 + AROUND) for e in ends], color="0.9",
                      linewidth=0, label=f"within {AROUND * 100:.0f} %")
    left.plot(ends, ends, color="black", linewidth=1.0, label="predicted = measured")
    right.axvspan(-AROUND * 100, AROUND * 100, color="0.93", linewidth=0)
    right.axvline(0.0, color="black", linewidth=1.0)
    for place, suite in enumerate(suites):
        look = LINES[place % len(LINES)]
        # Hollow: figures were fitted on it, so it says less.
        for split, face in (("fit", "white"), ("test", look["color"])):
            some = [case for case in suite["cases"] if case["split"] == split]
            if not some:
                continue
            style = {"fmt": look["marker"], "color": look["color"], "markerfacecolor": face, "markersize": 5,
                     "elinewidth": 0.8, "linestyle": "none"}
            middle = [case["predicted"] for case in some]
            below = [max(0.0, case["predicted"] - case["low"]) for case in some]
            above = [max(0.0, case["high"] - case["predicted"]) for case in some]
            left.errorbar([case["measured"] for case in some], middle, [below, above], **style)
            shift = -0.15 if split == "fit" else 0.15
            scale = [100 / case["measured"] for case in some]
            right.errorbar([case["error"] * 100 for case in some], [place + shift] * len(some),
                           xerr=[[b * s for b, s in zip(below, scale)], [a * s for a, s in zip(above, scale)]],
                           **{**style, "elinewidth": 0.3})
    left.set_xscale("log")
    left.set_yscale("log")
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")
    left.set_xlim(*ends)
    left.set_ylim(*ends)
    left.set_aspect("equal")
    left.set_xlabel("measured step time [s]")
    left.set_ylabel("predicted step time [s]")
    left.plot([], [], "o", color="0.3", markerfacecolor="white", label="figures were fitted on it")
    left.plot([], [], "o", color="0.3", label="nothing was")
    tidy(left)
    legend(left, loc="upper left")
    right.set_yticks(range(len(suites)), [f"{suite['name']}\n{len(suite['cases'])} cases" for suite in suites])
    right.set_ylim(len(suites) - 0.5, -0.5)
    right.set_xlabel("error of the forecast and its band\n[% of the measured step time]")
    tidy(right, "x")
    title(figure, "Predicted against measured step times")
    versions = suites[0]["versions"]
    names = "; ".join(f"{suite['name']}: {suite['source']}" for suite in suites)
    small_print(figure, [f"stepcast {versions['stepcast']} ({versions['revision']})",
                         f"basis: {', '.join(sorted({case['basis'] for case in cases}))}", f"measured: {names}"])
    return figure


def draw(inputs: Inputs) -> Figure:
    suites = [suite for suite in inputs.validated if suite["cases"]]
    if suites:
        return draw_suites(suites)
    need_result(inputs)
    if not inputs.cases:
        raise Nothing("needs measured step times: name a case such as tests/validation/*.json")
    pairs = measured_pairs(inputs)
    if not pairs:
        raise Nothing("no measured row has the settings of a point")
    tall = max(4.8, 1.6 + 0.3 * len(pairs))
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, tall), layout="constrained", width_ratios=(1.1, 1))
    measured = [row["step_time_s"] * 1e3 for _, row, _ in pairs]
    predicted = [point["step_time_s"] * 1e3 for _, _, point in pairs]
    bands = [[edge * 1e3 for edge in point["step_time_band_s"] or [point["step_time_s"]] * 2] for _, _, point in pairs]
    below = [max(0.0, p - low) for p, (low, _) in zip(predicted, bands)]
    above = [max(0.0, high - p) for p, (_, high) in zip(predicted, bands)]

    low, high = min(measured + predicted), max(measured + predicted)
    ends = [low - 0.12 * (high - low) - 0.02 * low, high + 0.12 * (high - low) + 0.02 * high]
    left.fill_between(ends, [e * (1 - AROUND) for e in ends], [e * (1 + AROUND) for e in ends], color="0.9",
                      linewidth=0, label=f"within {AROUND * 100:.0f} %")
    left.plot(ends, ends, color="black", linewidth=1.0, label="predicted = measured")
    left.errorbar(measured, predicted, [below, above], fmt="o", color=BLUE, capsize=3, label="forecast and its band")
    left.set_xlim(*ends)
    left.set_ylim(*ends)
    left.set_xlabel("measured step time [ms]")
    left.set_ylabel("predicted step time [ms]")
    left.set_aspect("equal")
    tidy(left)
    legend(left, loc="upper left")

    errors = [(p / m - 1) * 100 for p, m in zip(predicted, measured)]
    places = list(range(len(pairs)))
    right.axvspan(-AROUND * 100, AROUND * 100, color="0.93", linewidth=0)
    right.barh(places, errors, color=VERMILLION, height=0.6)
    right.errorbar(errors, places, xerr=[[b / m * 100 for b, m in zip(below, measured)],
                                         [a / m * 100 for a, m in zip(above, measured)]],
                   fmt="none", color="black", capsize=3, linewidth=1.0)
    right.axvline(0.0, color="black", linewidth=1.0)
    widest = max(AROUND * 100, *map(abs, errors)) * 1.3
    right.set_xlim(-widest, widest)
    for place, error, a, b, m in zip(places, errors, above, below, measured):
        # On the side of zero that the bar leaves free.
        right.text(-0.03 * widest if error > 0 else 0.03 * widest, place, f"{error:+.1f} %", va="center",
                   ha="right" if error > 0 else "left", fontsize=9)
    right.set_yticks(places, [name for name, _, _ in pairs])
    right.invert_yaxis()
    right.set_xlabel("error of the forecast [% of the measured step time]")
    tidy(right, "x")
    sources = [f"measured: {case['name']}: {case['source']}" for case in inputs.cases]
    caption(figure, inputs, [point for _, _, point in pairs], *sources)
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
