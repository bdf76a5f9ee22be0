#!/usr/bin/env python3
"""Prints the error of predicted AllReduce times against the samples of a calibration, as Markdown.

    python3 tests/validation/compare_all_reduce.py platforms/abci_v100.json \
        platforms/abci_v100.calibration.json

The samples themselves are kept from the forecast: this is the mechanism with the fitted rates and overheads alone.
Bold cells are of sizes, ranks and nodes that the chosen protocol was fitted on.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
SIZES = {"4 B": 4, "1 KiB": 1 << 10, "16 KiB": 16 << 10, "64 KiB": 64 << 10, "256 KiB": 256 << 10,
         "512 KiB": 512 << 10, "1 MiB": 1 << 20, "2 MiB": 2 << 20, "4 MiB": 4 << 20, "8 MiB": 8 << 20,
         "16 MiB": 16 << 20, "32 MiB": 32 << 20}


def compare(platform: str, calibration: str) -> str:
    whole = json.loads((ROOT / calibration).read_text())
    samples = whole.pop("samples")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as fitted:
        json.dump(whole, fitted)
        fitted.flush()
        return table(platform, fitted.name, samples)


def table(platform: str, calibration: str, samples: list) -> str:
    lines = ["| GPUs | " + " | ".join(SIZES) + " |", "|---" * (len(SIZES) + 1) + "|"]
    for ranks in sorted({sample["ranks"] for sample in samples}):
        done = subprocess.run(
            [STEPCAST, "collective", "--platform", platform, "--calibration", calibration, "--gpus", str(ranks),
             "--bytes", ",".join(map(str, SIZES.values())), "--json", "-"],
            cwd=ROOT, check=True, capture_output=True, text=True)
        measured = {sample["bytes"]: sample["time_s"] for sample in samples if sample["ranks"] == ranks}
        cells = [str(ranks)]
        for row in json.loads(done.stdout)["rows"]:
            error = f"{row['time_s'] / measured[row['bytes']] - 1:+.0%}"
            cells.append(f"**{error}**" if row["basis"] == "interpolated" else error)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: compare_all_reduce.py PLATFORM CALIBRATION")
    print(compare(*sys.argv[1:]), end="")
