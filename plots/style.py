"""What the figures look like: colours, small print, PNG and SVG; and the command line of each script."""

import argparse
import math
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

try:
    import matplotlib
except ImportError:  # exit code 3: something the machine lacks
    print("stepcast: Python has no matplotlib here: ./dev setup installs it", file=sys.stderr)
    sys.exit(3)

matplotlib.use("Agg")  # draws into a file: there need not be a screen
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from inputs import Inputs, Json, NotAResult, bytes_text, name_of, provenance, read, text_of, varied_keys
from output import refuse_inputs, write_whole

SUFFIXES = (".png", ".svg", ".pdf")

# From bottom to top: key in "split", legend, colour. The colours are Okabe and Ito's, which
# colour-blind people can tell apart, in an order whose neighbours differ in lightness too (print).
BLUE, SKY, GREEN, YELLOW, VERMILLION = "#0072B2", "#56B4E9", "#009E73", "#F0E442", "#D55E00"
ORANGE, PURPLE, BLACK = "#E69F00", "#CC79A7", "#000000"
PARTS = (
    ("compute_s", "compute", BLUE),
    ("optimizer_s", "optimizer", SKY),
    ("host_s", "host-bound", GREEN),
    ("wait_s", "waiting for other ranks", YELLOW),
    ("exposed_comm_s", "exposed communication", VERMILLION),
)
COMM_ON_WHITE = "#A34700"  # the colour of exposed communication, darkened for text
# Lines differ in colour, in dashes and in marker, so that print without colour does.
LINES = (
    {"color": BLUE, "marker": "o", "linestyle": "-"},
    {"color": VERMILLION, "marker": "s", "linestyle": "--"},
    {"color": GREEN, "marker": "^", "linestyle": "-."},
    {"color": PURPLE, "marker": "D", "linestyle": ":"},
    {"color": ORANGE, "marker": "v", "linestyle": "-"},
    {"color": SKY, "marker": "P", "linestyle": "--"},
    {"color": BLACK, "marker": "X", "linestyle": "-."},
)


class Nothing(Exception):
    """There is no data for this figure; the text says what is lacking."""


Draw = Callable[[Inputs], Figure]


def set_up() -> None:
    plt.rcParams.update({"font.size": 10, "hatch.linewidth": 0.7, "text.parse_math": False})
    plt.rcParams.update({"svg.hashsalt": "stepcast", "svg.fonttype": "none"})


def tidy(axes: Axes, grid: str = "both") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis=grid, color="0.88")


def title(figure: Figure, text: str) -> None:
    """Broken into lines of equal length, as many as the width asks for."""
    lines = math.ceil(len(text) / (figure.get_figwidth() * 8)) or 1
    figure.suptitle(textwrap.fill(text, len(text) // lines + 8), fontsize=12, fontweight="bold")


def small_print(figure: Figure, facts: Sequence[str]) -> None:
    text = textwrap.fill(" · ".join(facts), int(figure.get_figwidth() * 17))
    figure.supxlabel(text, fontsize=7, color="0.35")


def caption(figure: Figure, inputs: Inputs, points: Sequence[Json], *notes: str) -> None:
    """The scenario's question, and in small print what the figure rests on."""
    assert inputs.result
    title(figure, str(inputs.result["scenario"]["question"]))
    small_print(figure, [*notes, *provenance(inputs.result, points)])


def need_result(inputs: Inputs) -> Json:
    if inputs.result is None:
        raise Nothing("needs a result of stepcast run")
    return inputs.result


def series_over(points: Sequence[Json], x_keys: set[str], most: int = len(LINES)) -> tuple[dict[str, list[Json]], str]:
    """Points by what varies beside `x_keys`, and what was left out because of too many lines."""
    others = [key for key in varied_keys(points) if key not in x_keys]
    series: dict[str, list[Json]] = {}
    for point in points:
        series.setdefault(name_of(point["settings"], others), []).append(point)
    if len(series) <= most:
        return series, ""
    # Evenly over all of them, the first and the last included.
    chosen = {round(i * (len(series) - 1) / (most - 1)) for i in range(most)}
    note = f"{len(chosen)} of {len(series)} lines drawn"
    return {name: some for i, (name, some) in enumerate(series.items()) if i in chosen}, note


def place(key: str, values: Sequence[Any]) -> tuple[dict[str, float], bool]:
    """Where each value of a setting stands on the x axis: log2 of numbers, else one after another."""
    distinct = list({text_of(key, value): value for value in values}.items())
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for _, v in distinct)
    if numbers:
        return {text: math.log2(value) for text, value in sorted(distinct, key=lambda e: e[1])}, True
    return {text: float(index) for index, (text, _) in enumerate(distinct)}, False


def legend(axes: Axes, **options: Any) -> None:
    axes.legend(frameon=False, fontsize=9, handlelength=3, **options)


def gpu_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """log2 of the number of GPUs, as a ladder that is doubled is drawn evenly."""
    axes.set_xscale("log", base=2)
    ticks, last = [], 0.0
    for size in sorted(set(sizes)):
        if not ticks or math.log2(size) - last >= 0.3:  # labels closer than that run together
            ticks.append(size)
            last = math.log2(size)
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_xlabel("GPUs")


def size_axis(axes: Axes, sizes: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    low, high = math.floor(math.log2(min(sizes))), math.ceil(math.log2(max(sizes)))
    step = max(1, math.ceil((high - low) / 9))
    ticks = [2.0**power for power in range(low, high + 1, step)]
    axes.set_xticks(ticks, [bytes_text(tick) for tick in ticks])
    axes.minorticks_off()


def save(figure: Figure, path: Path) -> None:
    """Puts the picture in place whole or not at all. Without a date it is the same file again."""
    dateless: dict[str, Json] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}

    def write(to: Path) -> None:
        figure.savefig(to, dpi=160, format=path.suffix[1:], metadata=dateless.get(path.suffix))

    write_whole(path, write)


def main(draw: Draw, about: str) -> int:
    kinds = " ".join(SUFFIXES)
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="RESULT", help="as for `stepcast plot`")
    parser.add_argument("-o", "--output", type=Path, required=True, help=f"picture: {kinds}")
    options = parser.parse_args()
    if options.output.suffix not in SUFFIXES:
        parser.error(f"{options.output}: the suffix must be one of {kinds}")
    try:
        refuse_inputs(options.output, options.files)
        set_up()
        save(draw(read(options.files)), options.output)
    except NotAResult as error:
        print(f"stepcast: {error}", file=sys.stderr)
        return 2
    except Nothing as error:
        print(f"stepcast: nothing to draw: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stepcast: {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 0
