#!/usr/bin/env python3
"""Makes tests/validation/pollux_*.json, stepcast.validation/1, from Pollux's published step times.

    python3 tests/validation/make_pollux.py SHARED_DATA_DIR

SHARED_DATA_DIR/tables/pollux_placements.csv quotes petuum/adaptdl @c793c70, sched/traces: 5,542 step
times of six models on 1 to 16 T4 of AWS g4dn.12xlarge. One GPU's rows are the models' traces
(models/make_models.py); of the others three questions are made, each with the same scenarios:

    pollux_in_sample.json   fitted on some placements of 1 to 4 nodes, the others predicted
    pollux_3_nodes.json     fitted on placements of up to 3 nodes, those of 4 predicted
    pollux_2_nodes.json     fitted on placements of up to 2 nodes, those of 3 and 4 predicted

Thinned: of each model's rows, sorted by placement and micro-batch, FITTED evenly spaced ones are taken,
as many of each number of nodes, and TESTED of the others, as the table has them. No row is repeated, but placements that differ only in the order of the
nodes (12 and 21 of 3 GPUs) are the same to a ring: `noise_relative` is the root mean square over
such groups of the relative standard deviation within them, for each model.
"""

import csv
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
FITTED = 12
TESTED = 50

MODELS = {
    "imagenet": "resnet50_t4_amp",
    "cifar10": "resnet18_cifar10_t4_fp32",
    "bert": "bert_base_squad_t4_fp32",
    "yolov3": "yolov3_voc_t4_amp",
    "deepspeech2": "deepspeech2_t4_fp32",
    "ncf": "neumf_t4_fp32",
}

# How much the ranks' computation differs in a step. YOLOv3's images change their size from epoch to epoch, on each
# rank by itself, from 320 to 608 pixels (of which the areas have a relative standard deviation of 0.41);
# utterances differ in length; CIFAR-10 and ImageNet are augmented on CPUs that the pods share. BERT's sequences
# and NeuMF's pairs are all of one size.
JITTER = [
    {"key": "imperfections.jitter.relative_sd", "scenario": model, "start": start, "low": 0.001, "high": 0.9}
    for model, start in (("yolov3", 0.41), ("deepspeech2", 0.1), ("cifar10", 0.05), ("imagenet", 0.03))
]

# What the network of the pods does; a flow's rate shows on three nodes and more only.
PAIR = {"key": "platform.fabric.node_pair_bandwidth_Bps", "start": 1e9, "low": 1e8, "high": 1e10}
FLOW = {"key": "platform.node.nics.bandwidth_Bps", "start": 6e8, "low": 1e8, "high": 6e9}
POD = {
    "key": "platform.node.interconnect.bandwidth_Bps",
    "start": 2e9,
    "low": 2e8,
    "high": 1e11,
}
POD_ALPHA = {
    "key": "platform.node.interconnect.alpha_s",
    "start": 1e-4,
    "low": 1e-6,
    "high": 1e-2,
}

QUESTIONS = {
    "in_sample": {
        "name": "1 to 4 nodes, from others of them",
        "fitted": (1, 4),
        "tested": (1, 4),
        "fit": [PAIR, FLOW, *JITTER, POD, POD_ALPHA],
        "bar": 0.08,
        "peers": ("the best peer form (Pollux's 7 parameters for each model), on what it was "
                  "fitted on", 0.0783),
    },
    "3_nodes": {
        "name": "4 nodes, from up to 3",
        "fitted": (1, 3),
        "tested": (4, 4),
        "fit": [PAIR, FLOW, *JITTER, POD, POD_ALPHA],
        "bar": 0.08,
        "peers": ("the best peer form (hierarchical ring), from up to 3 nodes to up to 16", 0.1092),
    },
    "2_nodes": {
        "name": "3 and 4 nodes, from up to 2",
        "fitted": (1, 2),
        "tested": (3, 4),
        "fit": [PAIR, *JITTER, POD, POD_ALPHA],
        "bar": 0.2,
        "peers": ("the best peer form (flat ring), from up to 2 nodes to up to 16", 0.442),
    },
}  # fmt: skip


def read(data):
    """Rows with more than one GPU, by model, in order."""
    rows = defaultdict(list)
    with open(data / "tables" / "pollux_placements.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["num_gpus"] != "1":
                rows[row["model"]].append(
                    (
                        [int(digit) for digit in row["placement"]],
                        int(float(row["local_bsz"])),
                        float(row["step_time_s"]),
                    )
                )
    return {model: sorted(rows[model], key=lambda row: (len(row[0]), row)) for model in MODELS}


def noise(rows):
    alike = defaultdict(list)
    for placement, batch, time in rows:
        alike[tuple(sorted(placement)), batch].append(time)
    deviations = [
        statistics.stdev(times) / statistics.fmean(times)
        for times in alike.values()
        if len(times) > 1
    ]
    return round(statistics.fmean(value**2 for value in deviations) ** 0.5, 4)


def evenly(rows, count):
    """The middles of `count` equal stretches."""
    return [rows[(2 * i + 1) * len(rows) // (2 * count)] for i in range(min(count, len(rows)))]


def scenario(model):
    return {
        "format": "stepcast.scenario/1",
        "question": f"How long does a step of Pollux's {model} take?",
        "model": f"../../models/{MODELS[model]}.json",
        "platform": "../../platforms/g4dn_12xlarge_calico.json",
        "collective": {"algorithm": "ring", "protocol": "Simple", "channels": 2},
        "cluster": {"gpus": 1},
        # Both factors are modelled for GPUs alone; what they make is within the noise.
        "interference": {"computation_factor": 1, "communication_factor": 1},
    }


def cases(rows, question):
    found = []
    for model, all_rows in rows.items():
        relative = noise(all_rows)

        def between(bounds, rows_of_model=all_rows):
            return [row for row in rows_of_model if bounds[0] <= len(row[0]) <= bounds[1]]

        first, last = question["fitted"]
        numbers = range(first, last + 1)
        fitted = [
            row for n in numbers for row in evenly(between((n, n)), FITTED // len(numbers))
        ]
        rest = [row for row in between(question["tested"]) if row not in fitted]
        for split, chosen in (("fit", fitted), ("test", evenly(rest, TESTED))):
            for placement, batch, time in chosen:
                name = "".join(map(str, placement))
                found.append(
                    {
                        "id": f"{model} {name} x {batch}",
                        "scenario": model,
                        "split": split,
                        "set": {
                            "training.micro_batch": batch,
                            "cluster.gpus": sum(placement),
                            "cluster.gpus_per_node": placement,
                        },
                        "measured": {
                            "step_time_s": float(f"{time:.5g}"),
                            "noise_relative": relative,
                        },
                    }
                )
    return found


def layout(document):
    """A line for each case."""
    head = json.dumps({key: value for key, value in document.items() if key != "cases"}, indent=1)
    lines = ",\n".join("  " + json.dumps(case) for case in document["cases"])
    return f'{head[:-2]},\n "cases": [\n{lines}\n ]\n}}\n'


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_pollux.py SHARED_DATA_DIR")
    rows = read(Path(sys.argv[1]))
    for suffix, question in QUESTIONS.items():
        document = {
            "format": "stepcast.validation/1",
            "suite": "pollux",
            "name": f"Six models on T4 over TCP, {question['name']}",
            "source": "petuum/adaptdl @c793c70, sched/traces/*/placements.csv: step times that AdaptDL "
            "logged; thinned by tests/validation/make_pollux.py",
            "machine": "AWS g4dn.12xlarge: 4 T4 in a node, one GPU in a pod, Calico (IPIP)",
            "peers": {"text": question["peers"][0], "mean_error": question["peers"][1]},
            "scenarios": {model: scenario(model) for model in MODELS},
            "fit": question["fit"],
            "bars": {"mean_abs_error": question["bar"]},
            "cases": cases(rows, question),
        }
        (HERE / f"pollux_{suffix}.json").write_text(layout(document), encoding="utf-8")


if __name__ == "__main__":
    main()
