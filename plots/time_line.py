"""Draws one step: the compute stream of a rank above, the collectives of its buckets below.

What of the compute stream is blocked is worked out in blocked.py; the small print says what of it does not
fit the split.
"""

import sys
from typing import Any

from blocked import blocked_spans, length
from inputs import Inputs, Json, bytes_text, name_of, text_of
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from style import BLUE, ORANGE, SKY, VERMILLION, Nothing, caption, main, need_result, plt, tidy


def the_point(inputs: Inputs) -> Json:
    """The largest: there communication matters most; of equal ones the one most exposed."""
    need_result(inputs)
    some = [point for point in inputs.points if point["buckets"]]
    if not some:
        raise Nothing("no point has collectives: on one GPU there are none")
    return max(some, key=lambda point: (point["world_size"], point["comm_fraction"]))


def draw(inputs: Inputs) -> Figure:
    point = the_point(inputs)
    step_ms = point["step_time_s"] * 1e3
    optimizer_ms = point["split"]["optimizer_s"] * 1e3
    blocked = [(begin * 1e3, end * 1e3) for begin, end in blocked_spans(point)]
    figure, axes = plt.subplots(figsize=(11.0, 3.9), layout="constrained")
    style: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.5}
    top, bottom, height = 1.0, 0.0, 0.56

    edges = [0.0, *(edge for span in blocked for edge in span), step_ms - optimizer_ms]
    for begin, end in zip(edges[::2], edges[1::2]):
        if end > begin:
            axes.barh(top, end - begin, height, begin, color=BLUE, **style)
    for begin, end in blocked:
        axes.barh(top, end - begin, height, begin, color="white", edgecolor=VERMILLION, hatch="////", linewidth=0.8)
    axes.barh(top, optimizer_ms, height, step_ms - optimizer_ms, color=SKY, **style)

    queued = False
    for bucket in point["buckets"]:
        ready, start, end = (bucket[key] * 1e3 for key in ("ready_s", "start_s", "end_s"))
        colour = VERMILLION if bucket["operation"] == "all_reduce" else ORANGE
        axes.barh(bottom, end - start, height, start, color=colour, **style)
        if bucket["operation"] == "all_reduce" and start - ready > 0.002 * step_ms:  # waits for the stream
            queued = True
            axes.plot([ready, start], [bottom + height / 2 + 0.06] * 2, color="0.35", linewidth=1.2)
        if bucket["operation"] == "all_reduce" and len(point["buckets"]) <= 60:
            axes.plot(ready, bottom + height / 2 + 0.06, "v", color="black", markersize=4, clip_on=False)
        if end - start > 0.016 * step_ms:  # there is room, for text from top to bottom at least
            axes.text((start + end) / 2, bottom, bytes_text(bucket["bytes"], 3), ha="center", va="center",
                      color="white", fontsize=8, fontweight="bold",
                      rotation=0 if end - start > 0.09 * step_ms else 90)
    repeated = max(bucket["runs_per_step"] for bucket in point["buckets"])

    axes.set_yticks([top, bottom], ["compute\nstream", "communication\nstream"])
    axes.set_ylim(-0.6, 1.5)
    axes.set_xlim(0.0, step_ms * 1.01)
    axes.set_xlabel("time from the start of the step [ms]")
    axes.tick_params(axis="y", length=0)
    tidy(axes, "x")
    handles: list[Any] = [
        Patch(color=BLUE, label="compute and host"),
        Patch(facecolor="white", edgecolor=VERMILLION, hatch="////", label="blocked: exposed, waiting"),
        Patch(color=SKY, label="optimizer"),
        Patch(color=VERMILLION, label="AllReduce of a bucket"),
    ]
    if any(bucket["operation"] == "broadcast" for bucket in point["buckets"]):
        handles.append(Patch(color=ORANGE, label="broadcast of buffers"))
    mark = "gradients ready" + (", line: waits for the stream" if queued else "")
    handles.append(axes.plot([], [], "v", color="black", markersize=4, label=mark)[0])
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)

    split = point["split"]
    away = (split["exposed_comm_s"] + split["wait_s"]) * 1e3 - length(blocked)
    gpus = f"{point['world_size']} GPU{'' if point['world_size'] == 1 else 's'}"
    others = [key for key in point["settings"] if text_of(key, point["settings"][key]) and key != "cluster.gpus"]
    notes = [f"step on {gpus}" + (f", {name_of(point['settings'], others)}" if others else ""),
             f"exposed {split['exposed_comm_s'] * 1e3:.3f} ms, waiting {split['wait_s'] * 1e3:.3f} ms (means over ranks)"]
    if abs(away) > 0.005 * step_ms:
        notes.append(f"drawn blocked {length(blocked):.3f} ms")
    if repeated > 1:
        notes.append(f"collectives drawn once that run up to {repeated} times")
    caption(figure, inputs, [point], *notes)
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
