"""Draws where the time of a training step goes: one stacked bar per point of a stepcast result.

Reads the result JSON and nothing else, so the picture can be made again from that file alone.
"""

import argparse
import itertools
import json
import math
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # draws into a file: there need not be a screen
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

FORMAT = "stepcast.result/1"
GPUS = "cluster.gpus"
SUFFIXES = (".png", ".svg", ".pdf")

# From bottom to top: key in "split", legend, colour. The colours are Okabe and Ito's, which
# colour-blind people can tell apart, in an order whose neighbours differ in lightness too (print).
PARTS = (
    ("compute_s", "compute", "#0072B2"),
    ("optimizer_s", "optimizer", "#56B4E9"),
    ("host_s", "host-bound", "#009E73"),
    ("wait_s", "waiting for other ranks", "#F0E442"),
    ("exposed_comm_s", "exposed communication\n(% is its share of the step)", "#D55E00"),
)
COMM_ON_WHITE = "#A34700"  # the colour of exposed communication, darkened for text


class NotAResult(Exception):
    """The file cannot be drawn; the text is one line that says why."""


@dataclass(frozen=True)
class Bar:
    settings: dict[str, Any]  # only what the scenario varies
    world_size: int
    nodes: int
    parts_ms: list[float]  # in the order of PARTS
    step_ms: float
    band_ms: tuple[float, float]
    comm_fraction: float
    efficiency: float | None  # none when the scenario has nothing to compare with
    engine: str
    basis: dict[str, str | None]  # none for communication when there is none


@dataclass(frozen=True)
class Result:
    question: str
    provenance: str
    bars: list[Bar]


def bar_from(point: dict[str, Any]) -> Bar:
    low_s, high_s = point["step_time_band_s"] or (point["step_time_s"], point["step_time_s"])
    return Bar(
        settings=dict(point["settings"]),
        world_size=point["world_size"],
        nodes=point["nodes"],
        parts_ms=[point["split"][key] * 1e3 for key, _, _ in PARTS],
        step_ms=point["step_time_s"] * 1e3,
        band_ms=(low_s * 1e3, high_s * 1e3),
        comm_fraction=float(point["comm_fraction"]),
        efficiency=point.get("scaling_efficiency"),
        engine=point["engine"],
        basis=dict(point["basis"]),
    )


def provenance_from(result: dict[str, Any], bars: Sequence[Bar]) -> str:
    def basis(part: str) -> str:
        """`compute measured` or, bar by bar, `compute measured (8 GPUs), extrapolated (16 GPUs)`"""
        kinds: dict[str, list[Bar]] = {}
        for bar in bars:
            kinds.setdefault(bar.basis[part] or "none", []).append(bar)
        if len(kinds) == 1:
            return f"{part} {next(iter(kinds))}"
        by_gpus = all(set(bar.settings) == {GPUS} for bar in bars)

        def members(some: list[Bar]) -> str:
            if by_gpus:
                gpus = ", ".join(str(bar.settings[GPUS]) for bar in some)
                return f"{gpus} GPU{'' if gpus == '1' else 's'}"
            return f"{len(some)} of {len(bars)} bars"

        return f"{part} " + ", ".join(f"{kind} ({members(some)})" for kind, some in kinds.items())

    versions, inputs = result["versions"], result["inputs"]
    engines = ", ".join(sorted({bar.engine for bar in bars}))
    calibration = inputs["calibration"]
    facts = [
        f"stepcast {versions['stepcast']} ({versions['revision']})",
        f"engine {engines}" + (f" {versions['simgrid']}" if engines == "simgrid" else ""),
        f"model {inputs['model']['name']}",
        f"platform {inputs['platform']['name']}",
        f"calibration {calibration['name'] if calibration else 'none'}",
        f"basis: {basis('compute')}; {basis('communication')}",
    ]
    return " · ".join(facts)


def load(path: Path) -> Result:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAResult(error.strerror) from error
    except ValueError as error:
        raise NotAResult(f"is not JSON: {error}") from error
    found = result.get("format") if isinstance(result, dict) else None
    if found != FORMAT:
        raise NotAResult(f'"format" must be "{FORMAT}", got {json.dumps(found)[:60]}')
    where = ""
    try:
        bars = []
        for index, point in enumerate(result["points"]):
            where = f" in /points/{index}"
            bars.append(bar_from(point))
        where = ""
        if not bars:
            raise NotAResult("has no points to draw")
        return Result(str(result["scenario"]["question"]), provenance_from(result, bars), bars)
    except KeyError as error:
        raise NotAResult(f"lacks {error}{where}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise NotAResult(f"is not a whole {FORMAT}{where}: {error}") from error


def text_of(key: str, value: Any) -> str:
    """A setting as people say it: bytes in MiB or KiB where that is exact, files without a path."""
    if value is None:
        return "–"
    if key.endswith("_bytes") and isinstance(value, int):
        for size, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
            if value >= size and value % size == 0:
                return f"{value // size} {unit}"
        return f"{value} B"
    return Path(value).name.removesuffix(".json") if isinstance(value, str) else json.dumps(value)


def nodes_text(bar: Bar) -> str:
    return "1 node" if bar.nodes == 1 else f"{bar.nodes} nodes"


def gpus_of(bar: Bar) -> Any:
    return bar.settings.get(GPUS, bar.world_size)


def labels_of(bars: Sequence[Bar]) -> tuple[list[str], str]:
    """What stands under each bar, and what the x axis is called: by what varies."""
    varied = list(dict.fromkeys(key for bar in bars for key in bar.settings))
    others = [key for key in varied if key != GPUS]
    if not others:
        return [f"{gpus_of(bar)}\n{nodes_text(bar)}" for bar in bars], "GPUs"
    name = ", ".join(others) + (" (top to bottom)" if len(others) > 1 else "")
    if GPUS not in varied:
        name += f", all on {bars[0].world_size} GPUs in {nodes_text(bars[0])}"
    return ["\n".join(text_of(key, bar.settings.get(key)) for key in others) for bar in bars], name


def groups_of(bars: Sequence[Bar]) -> list[list[int]]:
    """Neighbours with the same number of GPUs, if something else varies as well."""
    keys = {key for bar in bars for key in bar.settings}
    if GPUS not in keys or keys == {GPUS}:
        return [list(range(len(bars)))]
    runs = itertools.groupby(range(len(bars)), key=lambda index: gpus_of(bars[index]))
    return [list(run) for _, run in runs]


def draw_parts(axes: Axes, positions: Sequence[float], bars: Sequence[Bar]) -> None:
    style: dict[str, Any] = {"width": 0.74, "edgecolor": "white", "linewidth": 0.6}
    bottoms = [0.0] * len(bars)
    for part, (key, name, colour) in enumerate(PARTS):
        heights = [bar.parts_ms[part] for bar in bars]
        hatch = "///" if key == "exposed_comm_s" else None  # it is seen without colour as well
        axes.bar(positions, heights, bottom=bottoms, label=name, color=colour, hatch=hatch, **style)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def annotate(axes: Axes, x: float, bar: Bar, highest_ms: float) -> None:
    """Band, share of exposed communication, scaling efficiency and step time of one bar."""
    style: dict[str, Any]
    low, high = min(bar.band_ms[0], bar.step_ms), max(bar.band_ms[1], bar.step_ms)
    if low < high:
        error = [[bar.step_ms - low], [high - bar.step_ms]]
        axes.errorbar(x, bar.step_ms, error, color="black", capsize=3, linewidth=1.0)
    above = [(f"{bar.step_ms:#.4g} ms", "black", "bold")]
    if bar.efficiency is not None:
        above.insert(0, (f"eff. {bar.efficiency:.1%}", "black", "normal"))
    share = f"{bar.comm_fraction:.{0 if bar.comm_fraction >= 0.1 else 1}%}"
    comm_start = bar.step_ms - bar.parts_ms[-1]
    if low - comm_start >= 0.05 * highest_ms:  # it fits into its part, under the error bar
        style = {"ha": "center", "va": "center", "fontweight": "bold"}
        box = {"color": PARTS[-1][2], "pad": 1.5}  # keeps the hatching off the text
        axes.text(x, (comm_start + low) / 2, share, color="white", bbox=box, **style)
    else:
        above.insert(0, (share, COMM_ON_WHITE, "bold"))
    for line, (text, colour, weight) in enumerate(above):
        style = {"ha": "center", "color": colour, "fontweight": weight, "fontsize": 9}
        shift = (0, 4 + 12 * line)
        axes.annotate(text, (x, high), xytext=shift, textcoords="offset points", **style)


def draw(result: Result, path: Path) -> None:
    plt.rcParams.update({"font.size": 10, "hatch.linewidth": 0.7, "text.parse_math": False})
    plt.rcParams.update({"svg.hashsalt": "stepcast", "svg.fonttype": "none"})
    bars, groups = result.bars, groups_of(result.bars)
    labels, axis_name = labels_of(bars)
    longest = max(len(line) for label in labels for line in label.split("\n"))
    width_in = min(max(9.0, 4.0 + max(0.85, 0.1 * longest) * len(bars)), 40.0)
    figure, axes = plt.subplots(figsize=(width_in, 5.6), layout="constrained")

    # Bars stand 1 apart, groups a little more.
    positions = [index + 0.6 * number for number, group in enumerate(groups) for index in group]
    middle = positions[-1] / 2
    highest_ms = max(max(bar.step_ms, bar.band_ms[1]) for bar in bars)
    axes.set_xlim(min(-0.6, middle - 2.0), max(positions[-1] + 0.6, middle + 2.0))
    axes.set_ylim(0.0, highest_ms * 1.25)  # room for the text above the bars
    draw_parts(axes, positions, bars)
    for x, bar in zip(positions, bars):
        annotate(axes, x, bar, highest_ms)
    for group in groups if len(groups) > 1 else []:
        name = f"{gpus_of(bars[group[0]])} GPUs\n{nodes_text(bars[group[0]])}"
        center = (positions[group[0]] + positions[group[-1]]) / 2
        style: dict[str, Any] = {"ha": "center", "va": "top", "fontweight": "bold", "color": "0.25"}
        axes.text(center, 1.0, name, transform=axes.get_xaxis_transform(), **style)

    axes.set_xticks(positions, labels)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(axis_name)
    axes.set_ylabel("step time [ms]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="0.88")

    title_lines = math.ceil(len(result.question) / (width_in * 8)) or 1
    title = textwrap.fill(result.question, len(result.question) // title_lines + 8)
    figure.suptitle(title, fontsize=12, fontweight="bold")
    band: dict[str, Any] = {"color": "black", "marker": "|", "markersize": 11, "linestyle": "none"}
    handles = axes.get_legend_handles_labels()[0][::-1]  # in the order of the stack
    if any(bar.band_ms[0] < bar.band_ms[1] for bar in bars):
        handles.append(Line2D([], [], label="band of the step time", **band))
    if any(bar.efficiency is not None for bar in bars):
        handles.append(Line2D([], [], label="eff. = scaling efficiency", linestyle="none"))
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    figure.supxlabel(textwrap.fill(result.provenance, int(width_in * 18)), fontsize=7, color="0.35")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a date, the same result gives the same file.
    dateless = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dateless.get(path.suffix))


def main() -> int:
    kinds = " ".join(SUFFIXES)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path, help=f"{FORMAT}, as `stepcast run -o` writes it")
    parser.add_argument("-o", "--output", type=Path, required=True, help=f"picture: {kinds}")
    options = parser.parse_args()
    if options.output.suffix not in SUFFIXES:
        parser.error(f"{options.output}: the suffix must be one of {kinds}")
    try:
        draw(load(options.result), options.output)
    except NotAResult as error:
        print(f"{options.result}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{options.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
