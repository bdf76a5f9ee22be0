"""Draws throughput over the number of GPUs against what it would be if nothing were lost."""

import sys

from efficiency import curves_of
from inputs import Inputs
from matplotlib.figure import Figure

from style import LINES, caption, gpu_axis, legend, main, plt, tidy


def draw(inputs: Inputs) -> Figure:
    series, note = curves_of(inputs)
    figure, axes = plt.subplots(figsize=(8.0, 5.2), layout="constrained")
    shown = [point for points in series.values() for point in points]
    for (name, points), style in zip(series.items(), LINES):
        sizes = [point["world_size"] for point in points]
        rates = [point["throughput_samples_per_s"] for point in points]
        # n times one GPU: efficiency is what throughput is short of it (docs/results.md).
        ideal = [rate / point["scaling_efficiency"] for rate, point in zip(rates, points)]
        axes.plot(sizes, ideal, color=style["color"] if len(series) > 1 else "0.45", linewidth=1.0,
                  linestyle=(0, (2, 2)))
        axes.plot(sizes, rates, label=name or "forecast", **style)
        bands = [point["step_time_band_s"] or [point["step_time_s"]] * 2 for point in points]
        highs = [r * p["step_time_s"] / b[0] for r, p, b in zip(rates, points, bands)]
        lows = [r * p["step_time_s"] / b[1] for r, p, b in zip(rates, points, bands)]
        axes.fill_between(sizes, lows, highs, color=style["color"], alpha=0.18, linewidth=0)
        if len(series) == 1:
            for size, rate in zip(sizes, rates):
                axes.annotate(f"{rate:,.0f}", (size, rate), xytext=(6, -12), textcoords="offset points",
                              fontsize=9)
    axes.plot([], [], color="0.45", linewidth=1.0, linestyle=(0, (2, 2)), label="ideal: GPUs x one GPU")
    gpu_axis(axes, [point["world_size"] for point in shown])
    axes.margins(x=0.1)
    axes.set_yscale("log", base=10)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:,.0f}" if f"{value:e}"[0] in "25" else "")
    axes.set_ylabel("throughput [samples/s]")
    tidy(axes)
    axes.grid(axis="y", which="minor", color="0.94")
    legend(axes, loc="upper left")
    caption(figure, inputs, shown, *filter(None, [note]))
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
