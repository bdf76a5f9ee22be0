#!/usr/bin/env python3
"""Prints predicted and measured step times side by side, as the Markdown table of the README.

    python3 tests/validation/compare.py tests/validation/pytorch_ddp_resnet50.json
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))


def compare(case_path: Path) -> str:
    case = json.loads(case_path.read_text())
    done = subprocess.run([STEPCAST, "run", case["scenario"], "-o", "-"], cwd=ROOT, check=True,
                          capture_output=True, text=True)
    points = {point["settings"]["cluster.gpus"]: point for point in json.loads(done.stdout)["points"]}
    measured = {row["cluster.gpus"]: row["step_time_s"] for row in case["measured"]}
    first = min(measured)
    lines = [
        "| GPUs | predicted ms | measured ms | error | predicted growth | measured growth | exposed ms | hidden ms | efficiency |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for gpus, point in points.items():
        step = point["step_time_s"]
        cells = [f"{gpus}", f"{step * 1e3:.1f}"]
        growth = f"{step / points[first]['step_time_s'] - 1:+.1%}"
        if gpus in measured:
            cells += [f"{measured[gpus] * 1e3:.0f}", f"{step / measured[gpus] - 1:+.1%}", growth,
                      f"{measured[gpus] / measured[first] - 1:+.1%}"]
        else:
            cells += ["", "", growth, ""]
        cells += [f"{point['split']['exposed_comm_s'] * 1e3:.2f}", f"{point['overlapped_comm_s'] * 1e3:.2f}",
                  f"{point['scaling_efficiency']:.1%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: compare.py CASE.json")
    print(compare(Path(sys.argv[1])), end="")
