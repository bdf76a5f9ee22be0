#!/usr/bin/env python3
"""Writes scenarios/README.md: each scenario that ships with its question, and its answer in figures of its result.

    python3 scenarios/make_readme.py            # tests/scenarios_test.py holds the page against the results
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
PAGE = ROOT / "scenarios/README.md"


def ms(point):
    return f"{point['step_time_s'] * 1e3:.1f} ms"


def efficiency(point):
    return f"{point['scaling_efficiency']:.0%}".replace("%", " %")


def size(count):
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def change(point, base):
    """Of the time per sample."""
    rate = base["throughput_samples_per_s"] / point["throughput_samples_per_s"] - 1
    return f"{rate:+.1%}".replace("%", " %") if abs(rate) >= 0.0005 else "the same"


def by(points, key):
    return {point["settings"][key]: point for point in points}


def gpu_count(points):
    last = max(points, key=lambda point: point["world_size"])
    return (f"Efficiency is {efficiency(last)} on {last['world_size']} GPUs; waiting for one another and exposed "
            f"communication take {(last['split']['wait_s'] + last['split']['exposed_comm_s']) * 1e3:.1f} ms of {ms(last)}.")


def accumulation_slow_network(points):
    first, last = points[0], points[-1]
    return (f"One step in {last['accumulation_steps']} communicates: time per sample {change(last, first)}, efficiency "
            f"{efficiency(first)} to {efficiency(last)}.")


def algorithm_by_model(points):
    texts = []
    for case in dict.fromkeys(point["settings"]["case"] for point in points):
        some = by([p for p in points if p["settings"]["case"] == case], "collective.algorithm")
        auto = some.pop("auto")
        best = min(some, key=lambda name: some[name]["step_time_s"])
        worst = max(some, key=lambda name: some[name]["step_time_s"])
        texts.append(f"{case}: {best} is best, {worst} takes {change(some[worst], some[best])}; NCCL's own choice "
                     f"{change(auto, some[best])}")
    return "; ".join(texts) + "."


def batch_1024_by_accumulation(points):
    return "; ".join(f"{p['world_size']} GPU{'s' if p['world_size'] > 1 else ''} with {p['accumulation_steps']} "
                     f"accumulation step{'s' if p['accumulation_steps'] > 1 else ''}: {ms(p)}" for p in points) + "."


def batch_64_on_4(points):
    one, four = points
    return (f"{ms(one)} on one, {ms(four)} on four: {one['step_time_s'] / four['step_time_s']:.2f} times as fast, "
            f"with statistics of BatchNorm over {four['micro_batch']} samples instead of {one['micro_batch']}.")


def bucket_size(points):
    best = min(points, key=lambda point: point["step_time_s"])
    of = by(points, "training.bucket_cap_bytes")
    least, default = of[min(of)], of[25 << 20]
    if best is default:
        return f"The default of 25 MiB; {size(min(of))} takes {change(least, best)}."
    return (f"{size(best['settings']['training.bucket_cap_bytes'])}; the default of 25 MiB takes {change(default, best)} "
            f"time, {size(min(of))} {change(least, best)}.")


def chunk_size_8gpu(points):
    of = by(points, "collective.chunk_bytes")
    return "; ".join(f"{size(chunk)}: {p['comm_fraction']:.0%} of the step is exposed communication".replace("%", " %")
                     for chunk, p in of.items()) + "."


def ecmp(points):
    def cost(sync):
        of = by([p for p in points if p["settings"]["training.sync"] == sync], "case")
        even = of.pop("evenly balanced")
        hashed = sorted(of.values(), key=lambda point: point["step_time_s"])
        return f"{change(hashed[0], even)} to {change(hashed[-1], even)}"
    return (f"The step takes {cost('ddp')} where communication hides behind backward, {cost('flat')} where it does not: "
            "the hash decides.")


def learning_rate(points):
    [point] = points
    rate = point["learning_rate"]
    return (f"From batch {rate['reference_global_batch']} to {point['global_batch']}: x {rate['linear_factor']:.3g} by the "
            f"linear rule, x {rate['sqrt_factor']:.3g} by the square-root rule; for this optimizer the "
            f"{rate['rule'].replace('_', '-')} one is usual, with {rate['warm_up_epochs']} epochs of warm-up.")


def nics(points):
    of = by(points, "case")
    return (f"One NIC takes {change(of['1 NIC'], of['8 NICs'])}, four take {change(of['4 NICs'], of['8 NICs'])}: most of the "
            "communication hides behind backward.")


def nvlink_or_pcie(points):
    def of(kind, sync):
        [found] = [p for p in points if kind in p["settings"]["platform"] and p["settings"]["training.sync"] == sync]
        return found
    return (f"With overlap {change(of('pcie', 'ddp'), of('dgx1v', 'ddp'))} without NVLink; with one AllReduce behind backward "
            f"{change(of('pcie', 'flat'), of('dgx1v', 'flat'))}.")


def quickstart(points):
    last = points[-1]
    return f"{last['world_size']} GPUs work at {efficiency(last)}: {last['throughput_samples_per_s']:.0f} samples/s."


def straggler(points):
    of = by(points, "case")
    alike = of.pop("all alike")
    return "; ".join(f"{case}: {change(point, alike)}" for case, point in of.items()) + "."


def when_to_stop(points):
    below = [p for p in points if p["scaling_efficiency"] < 0.75]
    last = points[-1]
    where = f"Efficiency falls under 75 % at {below[0]['world_size']} GPUs" if below else "It does not fall under 75 %"
    return f"{where}; {last['world_size']} work at {efficiency(last)}."


ANSWERS = {function.__name__: function for function in (
    quickstart, gpu_count, when_to_stop, chunk_size_8gpu, bucket_size, algorithm_by_model, accumulation_slow_network,
    nvlink_or_pcie, nics, ecmp, straggler, batch_64_on_4, batch_1024_by_accumulation, learning_rate)}


def row(name):
    """The line of the page, and the result that it speaks of."""
    done = subprocess.run([STEPCAST, "run", f"scenarios/{name}.json", "-o", "-"], cwd=ROOT, capture_output=True,
                          text=True, check=True)
    result = json.loads(done.stdout)
    return f"| [{name}]({name}.json) | {result['scenario']['question']} | {ANSWERS[name](result['points'])} |\n"


def main():
    page = ("# Scenarios that ship\n\n"
            "Copy one and change it. All figures are forecasts, made by `stepcast run` and written here by\n"
            "[make_readme.py](make_readme.py); `--answer` says more, `stepcast plot` and `stepcast report` draw them.\n\n"
            "| scenario | question | answer |\n|---|---|---|\n")
    for name in ANSWERS:
        page += row(name)
    PAGE.write_text(page)


if __name__ == "__main__":
    sys.exit(main())
