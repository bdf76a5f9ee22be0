#!/usr/bin/env python3
"""Rewrites the table of docs/traces.md: imports each trace of ../shared/data, replays it on as many GPUs as it was
measured on and compares.

    python3 docs/make_traces.py [DATA]        # DATA: ../shared/data
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
PAGE = ROOT / "docs/traces.md"
BEGIN, END = "<!-- docs/make_traces.py -->\n", "<!-- end -->\n"

HTA = "facebookresearch+HolisticTraceAnalysis/"
# (files, what it is, platform, calibration, GPUs, sync, settings)
TRACES = [
    (HTA + "ns_resolution_trace_rank-0*", "ResNet-50, DDP, V100", "dgx1v", "abci_v100", 1, "ddp", {}),
    (HTA + "nccl_parser_config*", "ResNet-50, DDP, A100", "dgx_a100", "dgx_a100", 2, "ddp", {}),
    (HTA + "df_index_resolver*", "one AllReduce for each of 404 tensors, V100", "dgx1v", "abci_v100", 2, "per_tensor", {}),
    ("AMD-AGI+TraceLens/resnet_act*", "ResNet-18, DDP, MI300X (links of MI355X)", "mi355x_8gpu", "mi355x_8gpu", 8, "ddp",
     {}),
    ("pytorch+kineto/num_workers_0_a*", "ResNet-50, V100 of a DGX Station", "ideal", None, 1, "ddp", {}),
    ("pytorch+kineto/num_workers_0_b*", "the same, another run", "ideal", None, 1, "ddp", {}),
    ("facebookresearch+param/linear_kineto*", "linear layers, RTX 2080 Ti", "ideal", None, 1, "ddp", {}),
    ("facebookresearch+param/resnet_kineto*", "ResNet-18, RTX 2080 Ti", "ideal", None, 1, "ddp",
     {"parameters": "{data}/models.json#resnet18"}),
    ("facebookresearch+param/dlrm_kineto/*", "DLRM, 8 ranks, V100", "dgx1v", "abci_v100", 8, "ddp", {}),
    (HTA + "trace_diff_control*", "recommendation model, A100", "dgx_a100", "dgx_a100", 8, "ddp", {}),
    (HTA + "trace_diff_test*", "the same on V100", "dgx1v", "abci_v100", 2, "ddp", {}),
    (HTA + "negative_queue*", "torchrec, A100", "dgx_a100", "dgx_a100", 8, "ddp", {}),
    (HTA + "trace_filter_sampled_rank-0*", "sampled events", "ideal", None, 1, "ddp", {}),
    ("facebookresearch+param/resnet_2gpu_et*", "an execution trace, no times", "ideal", None, 1, "ddp", {}),
]


def stepcast(*arguments):
    return subprocess.run([STEPCAST, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT)


def replay(model, platform, calibration, gpus, sync, folder):
    scenario = {
        "format": "stepcast.scenario/1",
        "question": "Does the replay take as long as the trace?",
        "model": str(model),
        "platform": str(ROOT / f"platforms/{platform}.json"),
        "training": {"micro_batch": json.loads(model.read_text())["measured"][0]["micro_batch"], "sync": sync},
        "cluster": {"gpus": gpus},
    }
    if calibration:
        scenario["calibration"] = str(ROOT / f"platforms/{calibration}.calibration.json")
    path = folder / "scenario.json"
    path.write_text(json.dumps(scenario))
    done = stepcast("run", path, "-o", "-")
    if done.returncode != 0:
        sys.exit(done.stderr)
    point = json.loads(done.stdout)["points"][0]
    return point["step_time_s"] * 1e3, point["split"]["exposed_comm_s"] * 1e3


def row(data, files, what, platform, calibration, gpus, sync, settings, folder):
    paths = sorted((data / "traces").glob(files))
    if not paths:
        return None
    model = folder / "model.json"
    sets = [word for key, value in {"micro_batch": 32, **settings}.items() for word in ("--set", f"{key}={value}".format(data=data))]
    done = stepcast("import", "kineto", *paths, "-o", model, *sets)
    name = f"`{files}`: {what}"
    if done.returncode != 0:
        reason = done.stderr.rstrip("\n").rpartition(".gz: ")[2].partition(";")[0]
        return f"| {name} | refused: {reason} | | | | | |"
    exposed = float(re.search(r"NCCL of which ([\d.]+) ms exposed", done.stderr).group(1))
    measured = json.loads(model.read_text())["measured"][0]["step_time_s"]["median"] * 1e3
    alone = float(re.search(r": ([\d.]+) ms alone on one GPU", done.stderr).group(1))
    step, replayed = replay(model, platform, calibration, gpus, sync, folder)
    foreign = " (not plain data parallel)" if "not plain data parallelism" in done.stderr else ""
    return (f"| {name}{foreign} | {gpus} | {measured:.2f} | {alone:.2f} | {step:.2f} | {step / measured - 1:+.1%} | "
            f"{exposed:.2f} / {replayed:.2f} |")


def main():
    data = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT.parent / "shared/data")
    lines = ["| trace | GPUs | measured ms | alone ms | replayed ms | error | exposed ms, measured / replayed |",
             "|---|---|---|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        for trace in TRACES:
            if line := row(data, *trace, Path(folder)):
                lines.append(line)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
