#!/usr/bin/env python3
"""Makes tests/validation/schedules_*.json: AllReduces against closed forms and against SMPI.

    python3 tests/validation/make_schedules.py

The closed forms are those of docs/model.md for n ranks that share nothing. SMPI, SimGrid's own MPI, runs
its algorithms of the same names on the same ideal platform; that part is left alone without smpicc and
smpirun (Debian: libsimgrid-dev).
"""

import json
import math
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ALPHA_S, RATE = 2e-6, 25e9  # platforms/ideal.json
SIZES = (65536, 1 << 20, 64 << 20)
ALGORITHMS = {  # ours: SMPI's
    "ring": "lr",
    "recursive_doubling": "rdb",
    "recursive_halving_doubling": "rab",
}
PROGRAM = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, count = atoi(argv[1]) / 4;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float *in = calloc(count, 4), *out = calloc(count, 4);
  MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double mine = MPI_Wtime(), last;  /* all ranks start at 0 */
  MPI_Reduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("time %.9g\\n", last);
  MPI_Finalize();
}
"""
# alpha is the latency of the two links of a route, to the switch and from it.
PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1"><cluster id="c" prefix="h" suffix="" radical="0-63" speed="1Gf" bw="25GBps" lat="1us"/></platform>
"""
# Plain alpha and bandwidth: nothing of TCP, nothing for the processor, nothing for what flows back.
PLAIN = [
    "network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/bandwidth-factor:1",
    "network/latency-factor:1", "network/weight-S:0", "smpi/simulate-computation:no", "smpi/os:0:0:0",
    "smpi/or:0:0:0", "smpi/ois:0:0:0", "smpi/bw-factor:0:1", "smpi/lat-factor:0:1", "smpi/test:0", "smpi/wtime:0",
]  # fmt: skip


def closed_form(algorithm, ranks, size):
    """Rabenseifner, ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 2005."""
    rounds = math.log2(ranks)
    return {
        "ring": 2 * (ranks - 1) * ALPHA_S + 2 * (ranks - 1) / ranks * size / RATE,
        "recursive_doubling": rounds * (ALPHA_S + size / RATE),
        "recursive_halving_doubling": 2 * rounds * ALPHA_S + 2 * (ranks - 1) / ranks * size / RATE,
    }[algorithm]


def smpi(folder, algorithm, ranks, size):
    options = [f"--cfg={option}" for option in [f"smpi/allreduce:{ALGORITHMS[algorithm]}", *PLAIN]]
    done = subprocess.run(
        ["smpirun", "-np", str(ranks), "-platform", "p.xml", "-hostfile", "hosts", *options,
         "--log=root.thres:critical", "./program", str(size)],
        cwd=folder, capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    return float(re.search(r"time (\S+)", done.stdout)[1])


def write(file, name, source, time_of):
    cases = [
        {
            "id": f"{algorithm} {ranks} ranks {size} B",
            "scenario": "all_reduce",
            "split": "test",
            "set": {"cluster.gpus": ranks, "collective.algorithm": algorithm, "model.parameters.0.elements": size // 4},
            "measured": {"step_time_s": float(f"{time_of(algorithm, ranks, size):.9g}"), "noise_relative": None},
        }
        for algorithm in ALGORITHMS for ranks in (2, 4, 8, 16) for size in SIZES
    ]  # fmt: skip
    scenario = {
        "format": "stepcast.scenario/1",
        "question": "How long does one AllReduce take?",
        "model": "models/one_tensor.json",
        "platform": "../../platforms/ideal.json",
        "training": {"sync": "flat", "broadcast_buffers": False},
        "collective": {"chunking": "plain"},
        "interference": {"computation_factor": 1, "communication_factor": 1},
        "cluster": {"gpus": 2},
    }
    head = {
        "format": "stepcast.validation/1", "suite": "schedules", "name": name, "source": source,
        "derived": True,
        "machine": "one non-blocking switch, 25 GB/s and 2 us from rank to rank (platforms/ideal.json)",
        "bars": {"mean_abs_error": 0.01}, "scenarios": {"all_reduce": scenario},
    }  # fmt: skip
    text = ",\n".join(f'  "{key}": {json.dumps(value)}' for key, value in head.items())
    rows = ",\n".join("    " + json.dumps(one) for one in cases)
    (FOLDER / file).write_text(f'{{\n{text},\n  "cases": [\n{rows}\n  ]\n}}\n', encoding="utf-8")


def main():
    trace = {
        "format": "stepcast.trace/1", "name": "one tensor and no computation",
        "source": "made up: a step that is one AllReduce (tests/validation/make_schedules.py)", "gpu": "ideal",
        "precision": "fp32", "parameters": [{"name": "w", "elements": 1, "dtype": "float32"}],
        "optimizer": {"name": "none", "state_bytes_per_element": 0},
        "measured": [{"micro_batch": 1, "steps": 1, "step_time_s": {"median": 1e-12, "min": 1e-12, "max": 1e-12}, "forward": [],
                      "backward": [{"name": "w", "duration_s": 1e-12, "gradients": ["w"]}], "optimizer": []}],
    }  # fmt: skip
    (FOLDER / "models/one_tensor.json").write_text(json.dumps(trace, indent=1) + "\n", encoding="utf-8")
    write("schedules_closed_form.json", "AllReduces against their closed forms",
          "Rabenseifner, ICCS 2004; Thakur, Rabenseifner, Gropp, IJHPCA 2005 (not measured: derived)", closed_form)
    if not shutil.which("smpirun") or not shutil.which("smpicc"):
        print("make_schedules.py: SMPI skipped: no smpicc and smpirun")
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "program.c").write_text(PROGRAM)
        (place / "p.xml").write_text(PLATFORM)
        (place / "hosts").write_text("".join(f"h{i}\n" for i in range(64)))
        subprocess.run(["smpicc", "-O1", "program.c", "-o", "program"], cwd=folder, check=True, capture_output=True)
        version = subprocess.run(["smpirun", "-version"], capture_output=True, text=True).stdout.split("\n")[0]
        write("schedules_smpi.json", "AllReduces against SMPI",
              f"SMPI, {version.strip()}: its allreduces lr, rdb and rab with plain alpha and bandwidth "
              "(simulated, not measured)",
              lambda *what: smpi(folder, *what))


if __name__ == "__main__":
    main()
