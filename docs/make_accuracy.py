#!/usr/bin/env python3
"""Rewrites the table of docs/accuracy.md from what `stepcast validate --json` wrote.

    build/release/stepcast validate --json validate.json; python3 docs/make_accuracy.py validate.json DATE
"""

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "accuracy.md"
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


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    lines = [
        f"{sys.argv[2]}, stepcast {result['versions']['revision']}, SimGrid {result['versions']['simgrid']}:",
        "",
        "| suite | test cases | median | mean | p90 | worst | bias | in the band | bar |",
        "|---|---|---|---|---|---|---|---|---|",
        *(row(suite) for suite in result["suites"]),
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
