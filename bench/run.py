#!/usr/bin/env python3
"""Times whole processes, reads the inner loops off stepcast_bench, and prints the tables of docs/performance.md.

    bench/run.py [--write] [--only TABLE]...        # ./dev bench builds what it needs and writes the page

Each command runs several times; tables give the median, how far the fastest and the slowest are apart, and the
peak memory of the largest process. What takes too long or too much memory says so.
"""

import argparse
import datetime
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = Path(os.environ.get("STEPCAST", ROOT / "build/release/stepcast"))
LOOPS = STEPCAST.parent / "stepcast_bench"
PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- bench/run.py -->\n", "<!-- end -->\n"
SCENARIOS = "bench/scenarios"
LIMIT_S = 60.0
LIMIT_BYTES = 8 << 30  # of address space, so that no case takes the machine along
MIB = 1 << 20


@dataclass
class Timing:
    """Several runs of one command; `problem` where it failed."""

    seconds: list[float]
    cpu_s: float = 0.0
    peak_MB: float = 0.0
    problem: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def time(self) -> str:
        return self.problem or text_of(self.median)

    def spread(self) -> str:
        return "" if self.problem else f"{text_of(min(self.seconds))} to {text_of(max(self.seconds))}"

    def memory(self) -> str:
        return "" if self.problem else f"{self.peak_MB:.0f} MB"


def text_of(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def once(command) -> tuple[float, float, float, str]:
    """Wall clock, processor time, peak memory and what went wrong."""
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))

    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        process = subprocess.Popen([*map(str, command)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=said,
                                   preexec_fn=limit, start_new_session=True)
        timer = threading.Timer(LIMIT_S, lambda: os.killpg(process.pid, 9))
        timer.start()
        # Of the process and of those it waited for: times are summed, memory is that of the largest.
        _, status, usage = os.wait4(process.pid, 0)
        taken = time.perf_counter() - begin
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        problem = ""
        if process.returncode == -9 and taken >= LIMIT_S:
            problem = f"> {LIMIT_S:.0f} s"
        elif process.returncode != 0:
            said.seek(0)
            lines = said.read().decode(errors="replace").splitlines() or [f"exit code {process.returncode}"]
            problem = "fails: " + lines[-1].removeprefix("stepcast: ").replace("|", "")[:50]
        return taken, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6, problem


def measure(*command, runs=3, patience_s=4.0, first=STEPCAST) -> Timing:
    """Once only where that fails or takes longer than `patience_s`."""
    done = []
    for _ in range(runs):
        done.append(once([first, *command]))
        if done[-1][3] or done[-1][0] > patience_s:
            break
    print(f"  {' '.join(map(str, command))[:110]}: {text_of(done[-1][0])}", file=sys.stderr)
    return Timing([one[0] for one in done], statistics.median(one[1] for one in done), max(one[2] for one in done),
                  done[-1][3])


def table(heads, rows) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads),
            *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def scenario(name, *sets):
    return ["run", f"{SCENARIOS}/{name}.json", *(word for one in sets for word in ("--set", one))]


def sweep(points):
    """8 GPUs each; two settings that change the buckets, so that no two points are alike."""
    caps = [MIB * (i + 1) for i in range(max(1, points // 10))]
    firsts = [100_000 * (i + 1) for i in range(min(10, points))]
    vary = {"training.bucket_cap_bytes": caps, "training.first_bucket_bytes": firsts}
    return ["run", "scenarios/quickstart.json", "--set", "vary=" + json.dumps(vary), "-o", "/dev/null"]


EVERY_FLOW = ["--engine", "simgrid", "--no-fold"]
FAT_TREE = ["collective", "--platform", f"{SCENARIOS}/fat_tree.platform.json", "--algorithm", "hierarchical", "--bytes",
            "25MiB", "--gpus"]


def bars() -> list[str]:
    """The work, the command, the bar in s and in MB."""
    works = [
        ("`stepcast --version`", ["--version"], 0.030, None),
        ("8 GPUs, chunk by chunk, SimGrid", [*scenario("step_8"), "--engine", "simgrid"], 0.050, None),
        *((f"50 layers, uniform, {n:,} ranks", scenario("step", f"cluster.gpus={n}"), bar, None)
          for n, bar in ((256, 0.050), (1024, 0.050), (16384, 0.200))),
        *((f"the same with jitter, {n:,} ranks", scenario("step_jitter", f"cluster.gpus={n}"), bar, 200)
          for n, bar in ((256, 0.3), (1024, 4.0))),
        ("the same, every transfer on SimGrid, 256 ranks", [*scenario("step"), *EVERY_FLOW], 8.0, None),
        ("hierarchical on an oversubscribed fat tree, 4,096 ranks, 25 MiB, 1 channel", [*FAT_TREE, "4096", "--channels", "1"], 2.0, None),
        ("the same, 2 channels on rings of their own, on SimGrid", [*FAT_TREE, "4096", "--channels", "2"], 2.0, None),
        ("the same, 8 channels", [*FAT_TREE, "4096"], 2.0, None),
        ("65,536 ranks, 1 channel", [*FAT_TREE, "65536", "--channels", "1"], 1.0, 300),
        ("ring on one switch, 65,536 ranks, 25 MiB",
         ["collective", "--platform", "platforms/ideal.json", "--algorithm", "ring", "--bytes", "25MiB", "--gpus", "65536"],
         1.0, 300),
        ("sweep of 1,000 points of 8 GPUs", sweep(1000), 5.0, None),
    ]
    rows = []
    for work, command, bar_s, bar_mb in works:
        timing = measure(*command, runs=5, patience_s=20.0)
        met = not timing.problem and timing.median <= bar_s and (bar_mb is None or timing.peak_MB <= bar_mb)
        rows.append([work, timing.time(), timing.spread(), timing.memory(),
                     text_of(bar_s) + (f", {bar_mb} MB" if bar_mb else ""), "yes" if met else "**no**"])
    # By turns, so that whatever else the machine does slows both alike.
    steps = {k: scenario("accumulation", f"training.accumulation_steps={k}") for k in (1, 1024)}
    turns = [{k: measure(*command, runs=1) for k, command in steps.items()} for _ in range(11)]
    one, many = (Timing([turn[k].median for turn in turns], peak_MB=turns[0][k].peak_MB, problem=turns[0][k].problem)
                 for k in steps)
    ratio = many.median / one.median
    rows.append(["accumulation 1 -> 1,024", many.problem or f"{ratio:.2f} x", f"{one.time()}, {many.time()}", many.memory(),
                 "1.1 x", "yes" if ratio < 1.1 and not many.problem else "**no**"])
    return table(["work", "median", "fastest to slowest", "peak memory", "bar", "met"], rows)


# What others take for the same work on a 2-core machine of this class, as issue 8 quotes it.
OTHERS = {
    8: ["0.02 s", "", ""],
    64: ["0.5 s", "1.6 s", ""],
    256: ["7 s", "27 s", "2.5 s, 540 MB"],
    1024: ["153 s, 0.5 GB", "", ""],
}


def ranks() -> list[str]:
    columns = {
        "uniform": lambda n: scenario("step", f"cluster.gpus={n}"),
        "one slow NIC": lambda n: scenario("step_slow_nic", f"cluster.gpus={n}"),
        "jitter": lambda n: scenario("step_jitter", f"cluster.gpus={n}"),
        "every transfer on SimGrid": lambda n: [*scenario("step", f"cluster.gpus={n}"), *EVERY_FLOW],
    }
    slow = set()
    rows = []
    for n in (8, 64, 256, 1024, 4096, 16384):
        row = [f"{n:,}", f"{50 * 2 * n * (n - 1):.2g}"]
        for name, command in columns.items():
            if name in slow:  # the work grows with the square
                row.append("")
                continue
            timing = measure(*command(n), runs=3)
            if timing.problem or timing.median > 2.0:
                slow.add(name)
            row.append(timing.time() if timing.problem else f"{timing.time()}, {timing.memory()}")
        rows.append([*row, *OTHERS.get(n, ["", "", ""])])
    return table(["ranks", "transfers", *columns, "ASTRA-sim", "SMPI", "LogGOPSim"], rows)


def others() -> list[str]:
    """Work that the issue gives other tools' times for, and the nearest thing here."""
    ring = ["collective", "--platform", "platforms/ideal.json", "--algorithm", "ring", "--bytes", "25MiB", "--gpus"]
    works = [
        ("one ring, 4,096 ranks", [*ring, "4096"], "LogGOPSim 17 s, 2.8 GB"),
        # An eighth of 25 MiB goes around in a node, here in 4 pieces.
        ("hierarchical, 8 x 512 ranks, 4 chunks", [*FAT_TREE, "4096", "--channels", "1", "--chunk-bytes", "819200"],
         "ASTRA-sim 66 s"),
        ("ResNet-50 on 32 GPUs", ["run", "scenarios/quickstart.json", "--set", "cluster.gpus=32"],
         "TrioSim 41 s, with the cube of the GPUs"),
        ("50 layers, 16,384 ranks", scenario("step", "cluster.gpus=16384"), "a formula 0.02 s at any size"),
    ]
    rows = []
    for work, command, other in works:
        timing = measure(*command)
        rows.append([work, timing.time(), timing.memory(), other])
    return table(["work", "stepcast", "memory", "others"], rows)


def settings() -> list[str]:
    """One setting changes, on 64 ranks with jitter, and on 8 with every transfer on SimGrid."""
    cases = [
        ("chunks of a block of 64 KiB (512 KiB on 8 ranks)", "collective.chunk_bytes", ["max", "65536", "16384", "4096"]),
        ("buckets of 200 MiB of gradients", "training.bucket_cap_bytes", ["200MiB", "50MiB", "25MiB", "4MiB"]),
        ("channels", "collective.channels", ["1", "2", "4", "8"]),
        ("accumulation steps", "training.accumulation_steps", ["1", "16", "256", "1024"]),
    ]
    rows = []
    for what, key, values in cases:
        for value in values:
            sets = [f"{key}={value}", *(["training.sync=ddp"] if "bucket" in key else [])]
            many = measure(*scenario("step_jitter", "cluster.gpus=64", *sets))
            few = measure(*scenario("step", "cluster.gpus=8", *sets), *EVERY_FLOW)
            rows.append([what, f"`{key}={value}`", many.time(), many.memory(), few.time(), few.memory()])
            what = ""
    return table(["cost against", "setting", "64 ranks, jitter", "memory", "8 ranks, SimGrid", "memory"], rows)


def points() -> list[str]:
    rows = []
    for count in (10, 100, 1000, 10000):
        timing = measure(*sweep(count), runs=5)
        rows.append([f"{count:,}", timing.time(), text_of(timing.cpu_s), f"{1e3 * timing.cpu_s / count:.1f} ms",
                     timing.memory()])
    if shutil.which("mpirun") and b"libmpi.so" in STEPCAST.read_bytes():
        cores = os.cpu_count()
        timing = measure("--allow-run-as-root", "--oversubscribe", "-n", cores, STEPCAST, *sweep(1000), first="mpirun")
        rows.append([f"1,000 by `mpirun -n {cores}`", timing.time(), text_of(timing.cpu_s),
                     f"{timing.cpu_s:.1f} ms", timing.memory()])
    return table(["points", "time", "processor time", "a point", "largest process"], rows)


def loops() -> list[str]:
    if not LOOPS.exists():
        return ["stepcast_bench is not built: `cmake --preset release -DSTEPCAST_BENCH=ON`", ""]
    print("  stepcast_bench", file=sys.stderr)
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([LOOPS, "--benchmark_min_time=0.3", "--benchmark_repetitions=5", f"--benchmark_out={out.name}",
                        "--benchmark_out_format=json", "--benchmark_report_aggregates_only=true"], check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        runs = json.load(out)["benchmarks"]
    what = {
        "read_scenario": ("reading the quickstart and its files", "scenario"),
        "lower_step": ("its point on 32 GPUs as buckets, schedules and links", "point"),
        "longest_path/ring": ("longest path of a ring", "transfer"),
        "longest_path/halving_doubling": ("longest path of halving and doubling", "transfer"),
        "simgrid_flows": ("SimGrid alone, chains of flows", "flow"),
        "simgrid_step": ("SimGrid, the step of 50 layers", "transfer"),
        "walk_tasks": ("tasks of a step with accumulation", "task"),
        "start_child": ("the process of a point", "point"),
    }
    rows = []
    for run in runs:
        if run["aggregate_name"] != "median":
            continue
        name = run["run_name"].removesuffix("/real_time")
        size = re.search(r"/(\d+)$", name)
        kind = name[:size.start()] if size else name
        spread = next(r for r in runs if r["run_name"] == run["run_name"] and r["aggregate_name"] == "cv")
        one = 1 / run["items_per_second"]
        unit = next(f"{one * factor:.3g} {symbol}" for factor, symbol in ((1e3, "ms"), (1e6, "us"), (1e9, "ns"))
                    if one * factor >= 1 or symbol == "ns")
        of = {"longest_path": "ranks", "simgrid_flows": "chains", "simgrid_step": "ranks"}.get(kind.split("/")[0], "")
        text, item = what[kind]
        rows.append([text + (f", {int(size[1]):,} {of}" if size else ""), f"{unit} a {item}",
                     f"{100 * spread['items_per_second']:.0f} %"])
    return table(["inner loop", "median of 5", "standard deviation"], rows)


def profile() -> list[str]:
    """Where the time of a process goes, by perf."""
    if not shutil.which("perf"):
        return ["`perf` is not installed.", ""]
    works = {
        "uniform, 16,384 ranks": scenario("step", "cluster.gpus=16384"),
        "jitter, 1,024 ranks": scenario("step_jitter", "cluster.gpus=1024"),
        "every transfer on SimGrid, 64 ranks": [*scenario("step", "cluster.gpus=64"), *EVERY_FLOW],
        "sweep of 300 points": [*sweep(300), "--jobs", "1"],
    }
    rows = []
    for name, command in works.items():
        with tempfile.NamedTemporaryFile() as data:
            if once(["perf", "record", "-q", "-F", "1999", "-o", data.name, STEPCAST, *command])[3]:
                rows.append([name, "not profiled", ""])
                continue
            row = [name]
            for sort, most in (("dso", 4), ("symbol", 5)):
                text = subprocess.run(["perf", "report", "-i", data.name, "--stdio", "--no-children", "--sort", sort],
                                      capture_output=True, text=True).stdout
                found = re.findall(r"^\s+(\d+\.\d+)%\s+(.+?)(?:[ \t]{2,}.*)?$", text, re.MULTILINE)[:most]
                row.append(", ".join(f"{short(label)} {float(share):.0f} %" for share, label in found))
            rows.append(row)
    return table(["work", "where", "functions"], rows)


def short(symbol: str) -> str:
    """A function without its scopes and template arguments."""
    symbol = re.sub(r"^\[[.k]\] ", "", symbol).replace("(anonymous namespace)::", "")
    while (plain := re.sub(r"<[^<>]*>", "", symbol)) != symbol:
        symbol = plain
    symbol = re.sub(r"\(.*", "", symbol).removeprefix("stepcast::").removeprefix("[kernel.kallsyms]")
    return f"`{symbol or 'kernel'}`"


TABLES = {
    "bars": ("The bars", bars),
    "ranks": ("Ranks: 50 layers, an AllReduce each", ranks),
    "others": ("Beside others", others),
    "settings": ("Chunks, buckets, channels, accumulation", settings),
    "points": ("Points of a sweep", points),
    "loops": ("Inner loops", loops),
    "profile": ("Where the time goes", profile),
}


def machine() -> str:
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {cpu[1] if cpu else 'an unknown processor'}, {memory:.0f} GiB"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--only", action="append", choices=TABLES, help="one table, as often as you like")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write is for all tables")
    version = subprocess.run([STEPCAST, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    lines = [f"{datetime.date.today()}, {version}, {machine()}, load {os.getloadavg()[0]:.1f} at the start:", ""]
    begin = time.monotonic()
    for name, (title, make) in TABLES.items():
        if options.only and name not in options.only:
            continue
        print(title, file=sys.stderr)
        lines += [f"### {title}", "", *make()]
    lines += [f"Measured in {time.monotonic() - begin:.0f} s.", ""]
    text = "\n".join(lines)
    print(text)
    if options.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
