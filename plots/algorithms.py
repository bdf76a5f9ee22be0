"""Draws the bus bandwidth of collectives over the message size, forecast and measured.

Of each file of `stepcast collective --json` one curve; of a result the AllReduces of its buckets.
What the calibration at hand measured for the same collective and number of ranks is drawn with them.
"""

import sys
from collections.abc import Sequence
from typing import Any

from inputs import BUSBW_FACTORS, Inputs, Json
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from style import LINES, Nothing, caption, main, plt, size_axis, small_print, tidy, title

CHOSEN = "as chosen"  # a different algorithm for each size, as NCCL's tuner does
MARKERS = {"LL": "o", "LL128": "s", "Simple": "D"}
MEASURED = ("x", "+", "1", "2", "3", "4", "*")
Curve = tuple[str, list[tuple[float, float, str]]]  # name; size, busbw in B/s, protocol


def plural(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"


def name_of_algorithm(rows: Sequence[Json]) -> str:
    names = list(dict.fromkeys(row["algorithm"] for row in rows))
    return names[0] if len(names) == 1 else CHOSEN


def curves_of_tables(tables: Sequence[Json]) -> list[Curve]:
    curves = []
    for table in tables:
        rows = sorted((row for row in table["rows"] if row["bytes"] > 0), key=lambda row: row["bytes"])
        if not rows:
            continue
        words = [name_of_algorithm(rows), plural(rows[0]["ranks"], "rank")]
        for key, what in (("operation", table["operation"]), ("platform", table["platform"])):
            if len({other[key] for other in tables}) > 1:
                words.append(what)
        curves.append((", ".join(words), [(r["bytes"], r["busbw_Bps"], r["protocol"]) for r in rows]))
    return curves


def curves_of_buckets(points: Sequence[Json]) -> list[Curve]:
    found: dict[str, dict[float, tuple[float, float, str]]] = {}
    for point in points:
        for bucket in point["buckets"]:
            if bucket["operation"] == "all_reduce":
                name = (f"{bucket['algorithm']}, {plural(point['world_size'], 'rank')} "
                        f"on {plural(point['nodes'], 'node')}")
                row = (bucket["bytes"], bucket["busbw_Bps"], bucket["protocol"])
                found.setdefault(name, {}).setdefault(bucket["bytes"], row)
    return [(name, [rows[size] for size in sorted(rows)]) for name, rows in found.items()]


def measured_curves(samples: Sequence[Json], operation: str, ranks: set[tuple[int, int | None]],
                    around: tuple[float, float]) -> list[Curve]:
    """Samples of the same collective on as many ranks (and nodes, where the forecast tells them), of
    about the sizes that are drawn."""
    found: dict[str, list[tuple[float, float, str]]] = {}
    for sample in sorted(samples, key=lambda sample: sample["bytes"]):
        n = sample["ranks"]
        if sample["operation"] != operation or sample["time_s"] <= 0 or n < 2:
            continue
        if not ranks & {(n, sample["nodes"]), (n, None)}:
            continue
        if not around[0] / 4 <= sample["bytes"] <= around[1] * 4:
            continue
        forced = [sample[key] for key in ("algorithm", "protocol") if key in sample]
        words = [f"measured on {sample['platform']}", *forced, plural(n, "rank")]
        name = f"{', '.join(words)}\non {plural(sample['nodes'], 'node')}"
        rate = sample["bytes"] / sample["time_s"] * BUSBW_FACTORS[operation](n)
        found.setdefault(name, []).append((sample["bytes"], rate, ""))
    return list(found.items())


def draw(inputs: Inputs) -> Figure:
    if inputs.collectives:
        tables = inputs.collectives
        curves = curves_of_tables(tables)
        operations = {table["operation"] for table in tables}
        ranks = {(row["ranks"], None) for table in tables for row in table["rows"]}
    else:
        curves = curves_of_buckets(inputs.points)
        operations = {"all_reduce"}
        ranks = {(point["world_size"], point["nodes"]) for point in inputs.points}
    if not curves:
        raise Nothing("needs a table of stepcast collective --json, or a result with AllReduces")
    note = ""
    if len(curves) > len(LINES):
        note = f"{len(LINES)} of {len(curves)} curves drawn"
        curves = [curves[round(i * (len(curves) - 1) / (len(LINES) - 1))] for i in range(len(LINES))]
    sizes = [row[0] for _, rows in curves for row in rows]
    # Rates of different collectives have nothing to do with each other, so one operation only.
    measured = measured_curves(inputs.samples, next(iter(operations)), ranks,
                               (min(sizes), max(sizes))) if len(operations) == 1 else []

    figure, axes = plt.subplots(figsize=(9.6, 5.4), layout="constrained")
    handles = []
    style: dict[str, Any]
    for (name, rows), style in zip(curves, LINES):
        look: dict[str, Any] = {"color": style["color"], "linestyle": style["linestyle"] if inputs.collectives else ":"}
        if name.startswith(CHOSEN):  # wide and light, for it runs along the others
            look |= {"linewidth": 7.0, "alpha": 0.35, "solid_capstyle": "round", "zorder": 1.5, "linestyle": "-"}
        axes.plot([row[0] for row in rows], [row[1] / 1e9 for row in rows], **look)
        for protocol, marker in MARKERS.items():
            some = [row for row in rows if row[2] == protocol]
            if not name.startswith(CHOSEN):
                axes.plot([r[0] for r in some], [r[1] / 1e9 for r in some], marker, color=style["color"], markersize=5)
        handles.append(Line2D([], [], label=name, **look))
    for protocol in [p for p in MARKERS if any(row[2] == p for _, rows in curves for row in rows)]:
        handles.append(Line2D([], [], color="0.3", marker=MARKERS[protocol], linestyle="none", label=protocol))
    for (name, rows), marker in zip(measured, MEASURED):
        line = axes.plot([row[0] for row in rows], [row[1] / 1e9 for row in rows], marker, color="black",
                         markersize=8, markeredgewidth=1.3, label=name)
        handles.append(line[0])
        sizes += [row[0] for row in rows]
    size_axis(axes, sizes)
    if max(sizes) == min(sizes):
        axes.set_xlim(min(sizes) / 2, max(sizes) * 2)
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("size of the whole buffer [B]")
    axes.set_ylabel("bus bandwidth [GB/s]")
    tidy(axes)
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)
    notes = list(filter(None, [note, "" if measured else "nothing measured for these sizes and ranks"]))
    if inputs.collectives:
        first = inputs.collectives[0]
        platforms = ", ".join(dict.fromkeys(table["platform"] for table in tables))
        title(figure, f"{', '.join(sorted(operations))} on {platforms}")
        bases = sorted({row["basis"] for table in tables for row in table["rows"]})
        sources = [f"calibration {each['name']}, from {each['source']}" for each in inputs.calibrations]
        small_print(figure, [
            *notes, f"stepcast {first['versions']['stepcast']} ({first['versions']['revision']})",
            f"engine {', '.join(sorted({table['engine'] for table in tables}))}", *sources,
            f"basis: {', '.join(bases)}"])
    else:
        caption(figure, inputs, inputs.points, "AllReduces of the buckets, beside computation", *notes)
    return figure


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
