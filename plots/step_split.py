"""Draws where the time of a training step goes: one stacked bar per point of a stepcast result.

Reads the result JSON and nothing else, so the picture can be made again from that file alone.
"""

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from inputs import GPUS, Inputs, Json, axis_name, text_of
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from style import COMM_ON_WHITE, PARTS, Nothing, caption, main, need_result, plt, tidy

MOST_BARS = 48  # more could not be read


def band_ms(point: Json) -> tuple[float, float]:
    low_s, high_s = point["step_time_band_s"] or (point["step_time_s"],) * 2
    return min(low_s, point["step_time_s"]) * 1e3, max(high_s, point["step_time_s"]) * 1e3


def nodes_text(point: Json) -> str:
    return "1 node" if point["nodes"] == 1 else f"{point['nodes']} nodes"


def gpus_of(point: Json) -> Any:
    return point["settings"].get(GPUS, point["world_size"])


def labels_of(points: Sequence[Json]) -> tuple[list[str], str]:
    """What stands under each bar, and what the x axis is called: by what varies."""
    varied = list(dict.fromkeys(key for point in points for key in point["settings"]))
    others = [key for key in varied if key != GPUS]
    if not others:
        return [f"{gpus_of(point)}\n{nodes_text(point)}" for point in points], "GPUs"
    name = ", ".join(map(axis_name, others)) + (" (top to bottom)" if len(others) > 1 else "")
    if GPUS not in varied:
        name += f", all on {points[0]['world_size']} GPUs in {nodes_text(points[0])}"
    labels = ["\n".join(text_of(key, p["settings"].get(key)) for key in others) for p in points]
    return labels, name


def groups_of(points: Sequence[Json]) -> list[list[int]]:
    """Neighbours with the same number of GPUs, if something else varies as well."""
    keys = {key for point in points for key in point["settings"]}
    if GPUS not in keys or keys == {GPUS}:
        return [list(range(len(points)))]
    runs = itertools.groupby(range(len(points)), key=lambda index: gpus_of(points[index]))
    return [list(run) for _, run in runs]


def draw_parts(axes: Axes, positions: Sequence[float], points: Sequence[Json]) -> None:
    style: dict[str, Any] = {"width": 0.74, "edgecolor": "white", "linewidth": 0.6}
    bottoms = [0.0] * len(points)
    for key, name, colour in PARTS:
        heights = [point["split"][key] * 1e3 for point in points]
        hatch = "///" if key == "exposed_comm_s" else None  # it is seen without colour as well
        if hatch:
            name += "\n(% is its share of the step)"
        axes.bar(positions, heights, bottom=bottoms, label=name, color=colour, hatch=hatch, **style)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def annotate(axes: Axes, x: float, point: Json, highest_ms: float, size: float) -> None:
    """Band, share of exposed communication, scaling efficiency and step time of one bar."""
    style: dict[str, Any]
    (low, high), step_ms = band_ms(point), point["step_time_s"] * 1e3
    if low < high:
        error = [[step_ms - low], [high - step_ms]]
        axes.errorbar(x, step_ms, error, color="black", capsize=3, linewidth=1.0)
    above = [(f"{step_ms:#.4g} ms", "black", "bold")]
    if point["scaling_efficiency"] is not None:
        above.insert(0, (f"eff. {point['scaling_efficiency']:.1%}", "black", "normal"))
    fraction = point["comm_fraction"]
    share = f"{fraction:.{0 if fraction >= 0.1 else 1}%}"
    comm_start = step_ms - point["split"]["exposed_comm_s"] * 1e3
    if low - comm_start >= 0.05 * highest_ms:  # it fits into its part, under the error bar
        style = {"ha": "center", "va": "center", "fontweight": "bold", "fontsize": size}
        box = {"color": PARTS[-1][2], "pad": 1.5}  # keeps the hatching off the text
        axes.text(x, (comm_start + low) / 2, share, color="white", bbox=box, **style)
    else:
        above.insert(0, (share, COMM_ON_WHITE, "bold"))
    for line, (text, colour, weight) in enumerate(above):
        style = {"ha": "center", "color": colour, "fontweight": weight, "fontsize": size}
        shift = (0, 4 + (size + 3) * line)
        axes.annotate(text, (x, high), xytext=shift, textcoords="offset points", **style)


def draw(inputs: Inputs) -> Figure:
    need_result(inputs)
    points = sorted(inputs.points, key=gpus_of)  # in the order of the result among as many GPUs
    groups = groups_of(points)
    if len(points) > MOST_BARS:
        raise Nothing(f"{len(points)} points are too many bars, {MOST_BARS} can be read; fix a key with --set")
    labels, axis_name = labels_of(points)
    longest = max(len(line) for label in labels for line in label.split("\n"))
    width_in = min(max(9.0, 4.0 + max(0.85, 0.1 * longest) * len(points)), 40.0)
    figure, axes = plt.subplots(figsize=(width_in, 5.6), layout="constrained")

    # Bars stand 1 apart, groups a little more.
    positions = [index + 0.6 * number for number, group in enumerate(groups) for index in group]
    middle = positions[-1] / 2
    highest_ms = max(band_ms(point)[1] for point in points)
    axes.set_xlim(min(-0.6, middle - 2.0), max(positions[-1] + 0.6, middle + 2.0))
    axes.set_ylim(0.0, highest_ms * (1.25 if len(groups) == 1 else 1.4))  # for the text above the bars
    draw_parts(axes, positions, points)
    for x, point in zip(positions, points):
        annotate(axes, x, point, highest_ms, 9)
    for group in groups if len(groups) > 1 else []:
        gpus = gpus_of(points[group[0]])
        name = f"{gpus} GPU{'' if gpus == 1 else 's'}\n{nodes_text(points[group[0]])}"
        center = (positions[group[0]] + positions[group[-1]]) / 2
        style: dict[str, Any] = {"ha": "center", "va": "top", "fontweight": "bold", "color": "0.25"}
        style["bbox"] = {"color": "white", "pad": 1.5}  # keeps the grid off the text
        axes.text(center, 1.0, name, transform=axes.get_xaxis_transform(), **style)

    axes.set_xticks(positions, labels)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(axis_name)
    axes.set_ylabel("step time [ms]")
    tidy(axes, "y")

    band: dict[str, Any] = {"color": "black", "marker": "|", "markersize": 11, "linestyle": "none"}
    handles = axes.get_legend_handles_labels()[0][::-1]  # in the order of the stack
    if any(band_ms(point)[0] < band_ms(point)[1] for point in points):
        handles.append(Line2D([], [], label="band of the step time", **band))
    if any(point["scaling_efficiency"] is not None for point in points):
        handles.append(Line2D([], [], label="eff. = scaling efficiency", linestyle="none"))
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    caption(figure, inputs, points)
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
