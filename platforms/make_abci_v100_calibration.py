#!/usr/bin/env python3
"""Makes platforms/abci_v100.calibration.json from four nccl-tests logs of ABCI's V100 nodes.

    build/venv/bin/python platforms/make_abci_v100_calibration.py LOG_DIR \
        > platforms/abci_v100.calibration.json

LOG_DIR holds abci-v100-{1n4g,2n8g,4n16g,8n32g}-ar.txt: all_reduce_perf as AIST published it
(github.com/aistabci/abci2.0benchmark @f0aa27f2), NCCL 2.8.4, 4 B to 32 MiB, 100 iterations each.

The model is that of docs/model.md section 3. A ring of n ranks on K channels takes

    time = launch + 2 (n-1) (alpha + S / (n K efficiency B))

where alpha and B are those of the slowest hop: NVLink inside one node (K = 6 rings share no NVLink),
the NIC over several (one ring for each of the 2 NICs). It is linear in launch, alpha and 1/B, so each
fit is one weighted linear least squares over relative errors, with its standard errors. The latency
of a hop is hidden behind the other slice of a chunk; NCCL's figure for LL stands for it.

The logs do not say which protocol ran. Simple stands for all sizes from 4 MiB up; LL and LL128 are
fitted on the small and the middle sizes of the single node only: over several nodes NCCL sends those
through a tree, so those rows say nothing about a ring. Their hops are NCCL's own constants.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np

CASES = {"1n4g": (1, 4), "2n8g": (2, 8), "4n16g": (4, 16), "8n32g": (8, 32)}
GPUS_PER_NODE = 4
NVLINK_RINGS = 6
NICS = 2
NVLINK_NOMINAL = 25e9  # B/s, as in platforms/abci_v100.json
NIC_NOMINAL = 12.5e9
SIMPLE_FROM = 4 << 20
LL = (4, 256 << 10)  # B, the sizes that NCCL sends so; what is between is LL128's
LL128 = (512 << 10, 2 << 20)
LATENCY_NVLINK = 0.6e-6  # s, NCCL src/graph/tuning.cc (v2.28.9:149), ring, LL
LATENCY_NETWORK = 2.7e-6  # s, the same table
LL128_HOP = 1.9e-6  # s, the same table
TUNING = "NCCL src/graph/tuning.cc, hardware latency of a ring; not fitted"

ROW = re.compile(r"\s+(\d+)\s+\d+\s+float\s+sum\s+([\d.]+)\s")


def read_samples(folder):
    """(nodes, ranks, bytes, seconds) of every out-of-place row."""
    samples = []
    for case, (nodes, ranks) in CASES.items():
        path = folder / f"abci-v100-{case}-ar.txt"
        rows = [ROW.match(line) for line in path.read_text().splitlines()]
        found = [(nodes, ranks, int(row[1]), float(row[2]) * 1e-6) for row in rows if row]
        if len(found) != 24:
            sys.exit(f"{path.name}: {len(found)} rows instead of 24")
        samples += found
    return samples


def fit(design, times):
    """Least squares of relative errors: values, standard errors, relative residuals."""
    design, times = np.array(design), np.array(times)
    weighted = design / times[:, None]
    values, *_ = np.linalg.lstsq(weighted, np.ones(len(times)), rcond=None)
    residuals = design @ values / times - 1
    freedom = len(times) - len(values)
    covariance = np.linalg.inv(weighted.T @ weighted) * (residuals @ residuals / freedom)
    return values, np.sqrt(np.diag(covariance)), residuals


def fit_on_one_node(samples, sizes, hop):
    """Values (launch, 1 / (efficiency B)), errors and residuals over a range of sizes."""
    steps = 2 * (GPUS_PER_NODE - 1)
    chosen = [(size, time) for nodes, _, size, time in samples if nodes == 1 and sizes[0] <= size <= sizes[1]]

    def column(size):
        # NCCL gives a call a channel for every 512 threads with 8 n bytes each (enqueue.cc).
        rings = min(NVLINK_RINGS, max(1, size // (512 * 8 * GPUS_PER_NODE)))
        return steps * size / (GPUS_PER_NODE * rings)

    design = [[1, column(size)] for size, _ in chosen]
    values, errors, _ = fit(design, [time - steps * hop for _, time in chosen])
    predicted = np.array(design) @ values + steps * hop
    return values, errors, predicted / np.array([time for _, time in chosen]) - 1


def rounded(value):
    return float(f"{value:.4g}")


def fitted(value, error):
    return {"value": rounded(value), "stderr": rounded(error)}


def rate(inverse, error, nominal):
    """A bandwidth from a fitted 1/B, beside the platform's: their ratio is what carries over."""
    return {**fitted(1 / inverse, error / inverse**2), "nominal": nominal}


def residuals_json(residuals):
    return {
        "samples": len(residuals),
        "median_abs": rounded(np.median(abs(residuals))),
        "max_abs": rounded(max(abs(residuals))),
    }


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_abci_v100_calibration.py LOG_DIR")
    samples = read_samples(Path(sys.argv[1]))

    # Columns: launch, alpha NVLink, alpha NIC, 1/B NVLink, 1/B NIC.
    simple = [s for s in samples if s[2] >= SIMPLE_FROM]
    design = []
    for nodes, ranks, size, _ in simple:
        steps = 2 * (ranks - 1)
        rings = NVLINK_RINGS if nodes == 1 else NICS
        if nodes == 1:
            design.append([1, steps, 0, steps * size / (ranks * rings), 0])
        else:
            design.append([1, 0, steps, 0, steps * size / (ranks * rings)])
    values, errors, residuals = fit(design, [s[3] for s in simple])

    # LL and LL128: launch and 1/(efficiency B), the hop given.
    ll_values, ll_errors, ll_residuals = fit_on_one_node(samples, LL, LATENCY_NVLINK)
    ll128_values, ll128_errors, ll128_residuals = fit_on_one_node(samples, LL128, LL128_HOP)

    calibration = {
        "format": "stepcast.calibration/1",
        "name": "ABCI V100, NCCL 2.8.4",
        "source": "aistabci/abci2.0benchmark @f0aa27f2fbbbc09b71d1765c83693f0beef8b43f allreduce/, "
        "all_reduce_perf out of place on 1, 2, 4 and 8 nodes of 4 V100, 4 B to 32 MiB; fitted by "
        "platforms/make_abci_v100_calibration.py",
        "platform": "ABCI V100",
        "machine": json.loads((Path(__file__).parent / "abci_v100.json").read_text()),
        "date": "2021-06-09",
        "command": "all_reduce_perf -b 4 -e 32M -f 2 -g 1 -w 5 -n 100",
        "versions": {"nccl": "2.8.4-1", "cuda": "11.2.2"},
        "links": {
            "intra_node_Bps": rate(values[3], errors[3], NVLINK_NOMINAL),
            "inter_node_Bps": rate(values[4], errors[4], NIC_NOMINAL),
        },
        "protocols": [
            {
                "name": "LL",
                "efficiency": fitted(values[3] / ll_values[1], ll_errors[1] * values[3] / ll_values[1] ** 2),
                "launch_s": fitted(ll_values[0], ll_errors[0]),
                "alpha_intra_node_s": {"value": 0, "source": "flags travel with the data"},
                "alpha_inter_node_s": {"value": 0, "source": "flags travel with the data"},
                "latency_intra_node_s": {"value": LATENCY_NVLINK, "source": TUNING},
                "latency_inter_node_s": {"value": LATENCY_NETWORK, "source": TUNING},
                "range": {"bytes": list(LL), "ranks": [4, 4], "nodes": [1, 1]},
                "residuals": residuals_json(ll_residuals),
            },
            {
                "name": "LL128",
                "efficiency": fitted(
                    values[3] / ll128_values[1], ll128_errors[1] * values[3] / ll128_values[1] ** 2
                ),
                "launch_s": fitted(ll128_values[0], ll128_errors[0]),
                "alpha_intra_node_s": {"value": rounded(LL128_HOP - LATENCY_NVLINK), "source": TUNING},
                "alpha_inter_node_s": {"value": rounded(4e-6 - LATENCY_NETWORK), "source": TUNING},
                "latency_intra_node_s": {"value": LATENCY_NVLINK, "source": TUNING},
                "latency_inter_node_s": {"value": LATENCY_NETWORK, "source": TUNING},
                "range": {"bytes": list(LL128), "ranks": [4, 4], "nodes": [1, 1]},
                "residuals": residuals_json(ll128_residuals),
            },
            {
                "name": "Simple",
                "efficiency": {"value": 1.0, "source": "by definition: B is the rate of Simple"},
                "launch_s": fitted(values[0], errors[0]),
                "alpha_intra_node_s": fitted(values[1], errors[1]),
                "alpha_inter_node_s": fitted(values[2], errors[2]),
                "latency_intra_node_s": {"value": LATENCY_NVLINK, "source": TUNING},
                "latency_inter_node_s": {"value": LATENCY_NETWORK, "source": TUNING},
                "range": {"bytes": [SIMPLE_FROM, 32 << 20], "ranks": [4, 32], "nodes": [1, 8]},
                "residuals": residuals_json(residuals),
            },
        ],
    }
    lines = [
        json.dumps(
            {
                "operation": "all_reduce",
                "nodes": nodes,
                "ranks": ranks,
                "bytes": size,
                "time_s": float(f"{time:.6g}"),
                "source": f"allreduce on {nodes} node{'s' if nodes > 1 else ''}",
            }
        )
        for nodes, ranks, size, time in samples
    ]
    # One sample a line, so that a difference reads well.
    text = json.dumps(calibration, indent=2)
    print(text[: text.rindex("\n}")] + ',\n  "samples": [\n    ' + ",\n    ".join(lines) + "\n  ]\n}")


if __name__ == "__main__":
    main()
