#!/usr/bin/env python3
"""What hash collisions cost an AllReduce: the table of docs/model.md section 2.

    python3 tests/validation/ecmp.py [SEEDS]

64 GPUs of DGX H100 on two leaves of four nodes, nothing oversubscribed, 1 GiB by rings.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
LEAF = {"nodes_per_group": 4, "oversubscription": 1.0}
FABRICS = {
    "32 x 400 Gb/s": {"kind": "fat_tree", "levels": [{**LEAF, "uplinks": 32}]},
    "16 x 800 Gb/s": {"kind": "fat_tree", "levels": [{**LEAF, "uplinks": 16}]},
    "8 x 1.6 Tb/s": {"kind": "fat_tree", "levels": [{**LEAF, "uplinks": 8}]},
    "4 x 400 Gb/s of each rail's": {"kind": "rail", **LEAF, "uplinks": 4},
}


def busbw_GBps(fabric) -> float:
    machine = json.loads((ROOT / "platforms/dgx_h100.json").read_text())
    machine["fabric"] = fabric
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(machine, file)
        file.flush()
        done = subprocess.run([STEPCAST, "collective", "--platform", file.name, "--gpus", "64", "--bytes", "1GiB", "--algorithm",
                               "ring", "--json", "-"], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["rows"][0]["busbw_Bps"] / 1e9


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    print("| uplinks of a leaf | ideal | `ecmp` | `ecmp_qp` |\n|---|---|---|---|")
    for name, fabric in FABRICS.items():
        row = [name, f"{busbw_GBps(fabric):.0f}"]
        for balancing in ("ecmp", "ecmp_qp"):
            found = [busbw_GBps({**fabric, "load_balancing": balancing, "ecmp_seed": seed}) for seed in range(seeds)]
            row.append(f"{statistics.mean(found):.0f} ({min(found):.0f} to {max(found):.0f})")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
