#!/usr/bin/env python3
"""Rewrites the tables of docs/accuracy.md from what `stepcast validate --json` wrote, and draws its pictures.

    build/release/stepcast validate --json validate.json
    build/venv/bin/python docs/make_accuracy.py validate.json DATE
"""

import io
import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "plots"))
sys.path.insert(0, str(DOCS.parent / "tests/validation"))

import make_band  # noqa: E402
from matplotlib.ticker import LogLocator  # noqa: E402
from PIL import Image  # noqa: E402
from style import LINES, plt, set_up, tidy  # noqa: E402

PAGE = DOCS / "accuracy.md"
COLLECTIVES = "collectives"
LONGEST = 34  # characters of a name in a legend
AROUND = 0.10  # the grey strip around equality
BEGIN, END = "<!-- docs/make_accuracy.py -->\n", "<!-- end -->\n"


def percent(value, form=".1f"):
    return f"{100 * value:{form}} %"


def row(suite):
    name = f"`{suite['name']}`: {suite['title']}"
    if suite["skipped"]:
        return f"| {name} | skipped: {suite['skipped']} | | | | | | | |"
    test = suite["summary"]["test"]
    bars = suite["bars"]
    wanted = [f"{key.split('_')[0]} {percent(bars[key], '.0f')}" for key in ("mean_abs_error", "median_abs_error") if bars[key]]
    if bars["order_right"]:
        orders = suite["summary"]
        wanted.append(f"order {percent(bars['order_right'], '.0f')}: {orders['orders_right']} of {orders['orders']}")
    verdict = f"{'missed' if suite['missed'] else 'met'} ({', '.join(wanted)})" if wanted else ""
    return (
        f"| {name} | {test['cases']} | {percent(test['median_abs_error'])} | {percent(test['mean_abs_error'])} | "
        f"{percent(test['p90_abs_error'])} | {percent(test['max_abs_error'])} | {percent(test['bias'], '+.1f')} | "
        f"{percent(test['inside_band'], '.0f')} | {verdict} |"
    )


def tested(suite):
    return [case for case in suite["cases"] if case["split"] == "test"]


def time_text(value):
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= unit:
            return f"{value / unit:g} {name}"
    return f"{value:g} s"


def draw_panel(axes, title, series):
    """`series` are names with their cases. Logarithmic, the same decades on both axes."""
    times = [case[key] for _, cases in series for case in cases for key in ("predicted", "measured")]
    ends = [min(times) / 1.4, max(times) * 1.4]
    axes.fill_between(ends, [e * (1 - AROUND) for e in ends], [e * (1 + AROUND) for e in ends], color="0.72", linewidth=0)
    for factor in (0.5, 2.0):
        axes.plot(ends, [e * factor for e in ends], ":", color="0.5", linewidth=0.8)
    axes.plot(ends, ends, color="black", linewidth=0.6)
    for (name, cases), look in zip(series, LINES):
        axes.plot([case["measured"] for case in cases], [case["predicted"] for case in cases], look["marker"],
                  color=look["color"], markersize=3, markeredgewidth=0, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        if ends[1] < 50 * ends[0]:  # less than two decades
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(lambda value, _: time_text(value))
        axis.set_minor_formatter(lambda *_: "")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_aspect("equal")
    axes.tick_params(labelsize=8)
    axes.set_title(f"{title} ({sum(len(cases) for _, cases in series)})", fontsize=10)
    if len(series) > 1:
        axes.legend(frameon=False, fontsize=7, loc="upper left", handletextpad=0.1, borderaxespad=0.2)
    tidy(axes)


def draw_errors(axes, pooled):
    """Which share of the cases is off by less than so much."""
    for (name, cases), look in zip(pooled, LINES):
        sizes = sorted(abs(case["error"]) * 100 for case in cases)
        shares = [(i + 1) / len(sizes) * 100 for i in range(len(sizes))]
        axes.step(sizes, shares, where="post", color=look["color"], linestyle=look["linestyle"], linewidth=1.2, label=name)
    axes.set_xscale("log")
    axes.set_xlim(0.1, 300)
    axes.set_ylim(0, 100)
    axes.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.tick_params(labelsize=8)
    axes.axvline(AROUND * 100, color="0.6", linewidth=0.8)
    axes.set_xlabel("error less than [%]", fontsize=9)
    axes.set_ylabel("share of the cases [%]", fontsize=9)
    axes.set_title("all errors", fontsize=10)
    axes.legend(frameon=True, edgecolor="none", framealpha=0.85, fontsize=7, loc="lower right")
    tidy(axes)


def draw(panels, errors, name):
    figure, grid = plt.subplots(2, 3, figsize=(10.5, 7.2), layout="constrained")
    for axes, panel in zip(grid.flat, panels):
        draw_panel(axes, *panel)
    left = grid.flat[len(panels):]
    draw_errors(left[0], errors)
    for axes in left[1:]:
        axes.set_visible(False)
    figure.supxlabel("measured", fontsize=10)
    figure.supylabel("predicted; grey: within 10 %, dotted: half and twice", fontsize=10)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=95, metadata={"Software": None})
    plt.close(figure)
    Image.open(picture).convert("RGB").quantize(96).save(DOCS / name, optimize=True)


def short(titles):
    """What tells the titles of one suite apart: without the words that all begin with."""
    split = [title.split() for title in titles]
    same = 0
    while len(titles) > 1 and all(len(words) > same + 1 for words in split) and len({words[same] for words in split}) == 1:
        same += 1
    texts = [" ".join(words[same:]).split(": ")[0] for words in split]
    texts = [text if len(text) <= LONGEST else text.split(",")[0] for text in texts]
    return [text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " ..." for text in texts]


def draw_all(suites):
    suites = [suite for suite in suites if tested(suite)]
    by_name = {}
    for suite in suites:
        by_name.setdefault(suite["name"], []).append(suite)
    # The table of peers has a few cases of one machine, which its row tells.
    collectives = [suite for suite in by_name.pop(COLLECTIVES, []) if not suite["peers"]]
    steps = [(name, list(zip(short([one["title"] for one in files]), map(tested, files)))) for name, files in by_name.items()
             if name != "schedules"]  # closed forms: a line, whatever is drawn
    if steps:
        draw(steps, [(name, [case for _, cases in series for case in cases]) for name, series in steps], "accuracy_steps.png")
    if collectives:
        machines = sorted({case["id"].split(":")[0] for suite in collectives for case in suite["cases"]})
        panels = []
        for suite in collectives:
            of = {name: [case for case in tested(suite) if case["id"].startswith(f"{name}:")] for name in machines}
            # The machines with most cases by name, the rest together.
            most = sorted(of, key=lambda name: -len(of[name]))[: len(LINES) - 2]
            series = [(name, of[name]) for name in machines if name in most and of[name]]
            rest = [case for name in machines if name not in most for case in of[name]]
            panels.append((suite["title"].split(",")[0].removesuffix(" that was forced"), series + ([("others", rest)] if rest else [])))
        draw(panels, [(panel[0], tested(suite)) for panel, suite in zip(panels, collectives)], "accuracy_collectives.png")


def pooled_row(one):
    test = one["test"]
    name = f"`{one['name']}`" if one["name"] else "all"
    return (
        f"| {name} | {one['files']} | {test['cases']} | {percent(test['median_abs_error'])} | "
        f"{percent(test['mean_abs_error'])} | {percent(test['p90_abs_error'])} | {percent(test['max_abs_error'])} | "
        f"{percent(test['bias'], '+.1f')} | {percent(test['inside_band'], '.0f')} |"
    )


def peers_rows(suites):
    compared = [suite for suite in suites if suite["peers"] and not suite["skipped"]]
    if not compared:
        return []
    rows = ["", "Beside the best peers:", "", "| suite | mean error | peers' mean error | peers |", "|---|---|---|---|"]
    for suite in compared:
        rows.append(
            f"| `{suite['name']}`: {suite['title']} | {percent(suite['summary']['test']['mean_abs_error'])} | "
            f"{percent(suite['peers']['mean_error'])} | {suite['peers']['text']} |"
        )
    return rows


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    set_up()
    draw_all(result["suites"])
    lines = [
        f"{sys.argv[2]}, stepcast {result['versions']['revision']}, SimGrid {result['versions']['simgrid']}:",
        "",
        "| suite | test cases | median | mean | p90 | worst | bias | in the band | bar |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row(suite) for suite in result["suites"]),
    ]
    lines += [
        "",
        "The files of a suite together; a case that stands in two of them counts once:",
        "",
        "| suite | files | test cases | median | mean | p90 | worst | bias | in the band |",
        "|---|---|---|---|---|---|---|---|---|",
        *(pooled_row(one) for one in result["pooled"] if one["test"]),
        *peers_rows(result["suites"]),
    ]
    lines += [
        "",
        "Measured steps in their bands, and in bands that the steps of the other suites alone would make "
        "([model.md](model.md) section 5):",
        "",
        *make_band.table(result),
    ]
    lines += ["", "Fitted, each on the cases with the split `fit`:", ""]
    for suite in result["suites"]:
        figures = [
            f"{key} = {figure['value']:.4g}" + (" (not determined)" if figure["held"] else f" ± {figure['stderr']:.2g}")
            for key, figure in suite["fitted"].items()
        ]
        if figures:
            lines.append(f"- `{suite['name']}`, {suite['title']}: {', '.join(figures)}")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
