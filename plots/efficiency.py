"""Draws scaling efficiency over the number of GPUs, with the 75 % line and the knee.

The knee is the last number of GPUs before the curve falls fastest away from its ends: the point
with the largest height above the straight line from the first to the last point, over log2 of the
number of GPUs (Kneedle: Satopää et al., ICDCS workshops 2011, without its smoothing). A curve that
nowhere stands 2 percentage points above that line has none.
"""

import math
import sys
from collections.abc import Sequence

from inputs import GPUS, Inputs, Json
from matplotlib.figure import Figure

from style import LINES, Nothing, caption, gpu_axis, legend, main, need_result, plt, series_over, tidy

GOOD = 0.75  # below it a quarter of what was paid for is lost
LEAST_BEND = 0.02


def curves_of(inputs: Inputs) -> tuple[dict[str, list[Json]], str]:
    """Points by number of GPUs, one curve for each value of what else varies."""
    need_result(inputs)
    if len({point["world_size"] for point in inputs.points}) < 2:
        raise Nothing(f"needs two numbers of GPUs: vary {GPUS}")
    series, note = series_over(inputs.points, {GPUS})
    return {name: sorted(some, key=lambda p: p["world_size"]) for name, some in series.items()}, note


def knee_of(points: Sequence[Json]) -> Json | None:
    if len(points) < 3:
        return None
    xs = [math.log2(point["world_size"]) for point in points]
    ys = [point["scaling_efficiency"] for point in points]
    slope = (ys[-1] - ys[0]) / (xs[-1] - xs[0]) if xs[-1] > xs[0] else 0.0
    heights = [y - (ys[0] + slope * (x - xs[0])) for x, y in zip(xs, ys)]
    best = max(range(len(points)), key=lambda i: heights[i])
    return points[best] if heights[best] >= LEAST_BEND else None


def draw(inputs: Inputs) -> Figure:
    series, note = curves_of(inputs)
    figure, axes = plt.subplots(figsize=(8.0, 5.2), layout="constrained")
    shown = [point for points in series.values() for point in points]
    single = len(series) == 1
    for (name, points), style in zip(series.items(), LINES):
        sizes = [point["world_size"] for point in points]
        efficiencies = [point["scaling_efficiency"] * 100 for point in points]
        axes.plot(sizes, efficiencies, label=name or "scaling efficiency", **style)
        # The band of the step time carries over: efficiency = time on one GPU / step time.
        bands = [point["step_time_band_s"] or [point["step_time_s"]] * 2 for point in points]
        upper = [e * p["step_time_s"] / b[0] for e, p, b in zip(efficiencies, points, bands)]
        lower = [e * p["step_time_s"] / b[1] for e, p, b in zip(efficiencies, points, bands)]
        axes.fill_between(sizes, lower, upper, color=style["color"], alpha=0.18, linewidth=0)
        knee = knee_of(points)
        if knee:
            at = (knee["world_size"], knee["scaling_efficiency"] * 100)
            axes.plot(*at, "o", markersize=14, markerfacecolor="none", markeredgecolor="black")
            text = f"knee: {knee['world_size']} GPUs, {at[1]:.1f} %"
            if single:
                axes.annotate(text, at, xytext=(9, 9), textcoords="offset points")
        if single:
            for size, value in zip(sizes, efficiencies):
                if not knee or size != knee["world_size"]:
                    axes.annotate(f"{value:.1f} %", (size, value), xytext=(5, 6),
                                  textcoords="offset points", fontsize=9)
    axes.axhline(GOOD * 100, color="black", linewidth=1.2, linestyle=(0, (5, 3)))
    axes.text(0.995, GOOD * 100, f"{GOOD * 100:.0f} % ", transform=axes.get_yaxis_transform(), ha="right", va="bottom")
    lowest = min(point["scaling_efficiency"] * 100 for point in shown)
    highest = max(100.0, *(point["scaling_efficiency"] * 100 for point in shown))
    axes.set_ylim(max(0.0, min(lowest, GOOD * 100) - 8), highest + 6)
    axes.margins(x=0.1)
    gpu_axis(axes, [point["world_size"] for point in shown])
    axes.set_ylabel("scaling efficiency [%]")
    tidy(axes)
    marks = "shaded: band of the step time" + ("; ring: knee of a curve" if any(map(knee_of, series.values())) else "")
    axes.plot([], [], " ", label=marks)
    legend(axes, loc="lower left" if single else "best")
    caption(figure, inputs, shown, *filter(None, [note]))
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
