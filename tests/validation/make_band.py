#!/usr/bin/env python3
"""Makes the four shares of sim/result/band.cpp from what `stepcast validate` is off by.

    build/release/stepcast validate --json validate.json; python3 tests/validation/make_band.py validate.json

What the model leaves out of a step is taken for independent of what was seen to vary, and in proportion to the time
on the GPU and to communication (docs/model.md section 5). How the four shares stand to each other minimises the
interval score of 80 % (Gneiting & Raftery, JASA 102, 2007, section 6.2), where each suite counts as much as any
other; then all are scaled so that 80 % of all cases lie in their bands. Only measured steps that nothing was fitted on
count; collectives have bands of their own. Printed is also how many cases of a suite lie in
the bands that the other suites alone would give.
"""

import json
import math
import sys
from pathlib import Path

WANTED = 0.8
LEAST = 0.005  # of a share: nothing is known better than that
NAMES = ("computation_below", "computation_above", "communication_below", "communication_above")


def cases_of(result):
    """Per suite: error of the prediction, what was seen to vary below and above, on the GPU, exposed, hidden; all
    relative to the predicted step."""
    suites = {}
    for suite in result["suites"]:
        for case in suite["cases"]:
            if suite["derived"] or suite["name"] == "collectives" or case["split"] != "test":
                continue
            parts, band, step = case["parts"], case["band_of"], case["predicted"]
            seen = [math.hypot(band["trace"][end], band["calibration"][end]) / step for end in ("below_s", "above_s")]
            suites.setdefault(suite["name"], []).append((
                case["measured"] / step - 1,
                *seen,
                (parts["compute_s"] + parts["host_s"] + parts["optimizer_s"]) / step,
                (parts["exposed_comm_s"] + parts["wait_s"]) / step,
                parts["overlapped_comm_s"] / step,
            ))  # fmt: skip
    return suites


def margins(shares, case):
    _, seen_below, seen_above, on_gpu, exposed, hidden = case
    return (
        math.hypot(seen_below, shares[0] * on_gpu, shares[2] * exposed),
        math.hypot(seen_above, shares[1] * on_gpu, shares[3] * (exposed + hidden)),
    )


def score(shares, suites):
    total = 0.0
    for cases in suites.values():
        for case in cases:
            below, above = margins(shares, case)
            outside = max(0.0, -below - case[0], case[0] - above)
            total += (below + above + 2 / (1 - WANTED) * outside) / len(cases)
    return total


def fitted(suites):
    shares, step = [0.05] * 4, 0.5
    best = score(shares, suites)
    while step > 2e-3:
        moved = False
        for place in range(4):
            for factor in (1 + step, 1 / (1 + step)):
                tried = list(shares)
                tried[place] = max(LEAST, tried[place] * factor)
                if (found := score(tried, suites)) < best - 1e-12:
                    shares, best, moved = tried, found, True
        step /= 1 if moved else 2
    low, high = 0.1, 10.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        scaled = [middle * share for share in shares]
        low, high = (low, middle) if inside(scaled, sum(suites.values(), [])) >= WANTED else (middle, high)
    return [high * share for share in shares]


def inside(shares, cases):
    found = 0
    for case in cases:
        below, above = margins(shares, case)
        found += -below <= case[0] <= above
    return found / len(cases)


def table(result):
    """Markdown: how many of a suite's cases lie in the bands of all suites, and in those of the others."""
    suites = cases_of(result)
    shares = fitted(suites)
    lines = ["| suite | cases | in the bands | in bands made of the other suites |", "|---|---|---|---|"]
    for name, cases in suites.items():
        others = fitted({key: value for key, value in suites.items() if key != name})
        lines.append(f"| `{name}` | {len(cases)} | {inside(shares, cases):.0%} | {inside(others, cases):.0%} |")
    every = sum(suites.values(), [])
    lines.append(f"| all | {len(every)} | {inside(shares, every):.0%} | |")
    return [line.replace("%", " %") for line in lines]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    result = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name, share in zip(NAMES, fitted(cases_of(result))):
        print(f"{name} = {share:.3f}")
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
