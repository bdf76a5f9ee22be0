#!/usr/bin/env python3
"""Predicts AllReduce on 8 hosts from a calibration on 2 and 4, and measures whether that is true.

    tests/validation/namespaces.py [--rate-Mbit 50] [--keep FOLDER]

The hosts are network namespaces on one bridge; the kernel's token buckets limit each of their links in
both directions. stepcast-calibrate-mpi measures OpenMPI's algorithms over TCP between them, a latency
and a rate are fitted for each algorithm, and `stepcast collective` simulates 8 hosts with them. Needs
root, ip, tc, mpirun and g++; exits with 77 where it lacks one of them, with 1 where a prediction is off by
more than 15 %.

All hosts share the processors of this machine, which may cost no more than the links do. So the rate is
low, packets are large (an MTU of 9000 bytes), and a rank that waits sleeps instead of polling.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = Path(os.environ.get("STEPCAST", ROOT / "build/release/stepcast"))
CALIBRATE = ROOT / "build/release/stepcast-calibrate-mpi"
SUBNET = "10.77.0"
MTU = 9000
FITTED, PREDICTED = (2, 4), 8
LARGEST_ERROR = 0.15
LACKING = 77  # as automake's and meson's tests say "skipped"

# Alpha and 1/bandwidth have these factors in the time of S bytes on n hosts (docs/model.md).
CLOSED_FORM = {
    "ring": lambda n, size: (2 * (n - 1), 2 * (n - 1) / n * size),
    "recursive_doubling": lambda n, size: (math.log2(n), math.log2(n) * size),
    "recursive_halving_doubling": lambda n, size: (2 * math.log2(n), 2 * (n - 1) / n * size),
}


class Lacking(Exception):
    """What this machine does not have or allow."""


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip("- ")] or ["no message"]
        raise RuntimeError(f"{' '.join(map(str, command[:4]))} ...: {said[0]}")
    return done.stdout


class Network:
    """Hosts 1 to n, each a namespace with one link to the namespace that holds the bridge."""

    def __init__(self, hosts: int, rate_mbit: int, stack: contextlib.ExitStack):
        self.prefix = f"stepcast{os.getpid()}-"
        stack.callback(self.remove)
        try:
            self.switch = self.add("switch")
            run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", "bridge", "up", "mtu", MTU)
            for i in range(1, hosts + 1):
                self.add_host(i, rate_mbit)
        except RuntimeError as error:
            raise Lacking(str(error)) from error

    def add(self, name) -> str:
        run("ip", "netns", "add", f"{self.prefix}{name}")
        return f"{self.prefix}{name}"

    def add_host(self, i: int, rate_mbit: int):
        host = self.add(i)
        run("ip", "-n", host, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self.switch)
        run("ip", "-n", host, "address", "add", f"{SUBNET}.{i}/24", "dev", "eth0")
        run("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "bridge")
        run("ip", "-n", host, "link", "set", "lo", "up")
        for space, device in ((host, "eth0"), (self.switch, f"port{i}")):
            # Packets as on a wire: none larger than the MTU. The queue holds what TCP can send, so none is lost.
            run("ip", "-n", space, "link", "set", device, "up", "mtu", MTU, "gso_max_size", MTU, "gso_max_segs", 1)
            run("tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{rate_mbit}mbit",
                "burst", "10kb", "limit", "32mb")
        # Reno, which every kernel allows in a namespace; BBR takes a second flow on a link for a slower link.
        run("ip", "netns", "exec", host, "sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0",
            "net.ipv4.tcp_congestion_control=reno")

    def remove(self):
        """Ends what runs in the namespaces; with them go their links. A second Ctrl-C does not stop it."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for line in run("ip", "netns", "list").splitlines():
            space = line.split()[0]
            if not space.startswith(self.prefix):
                continue
            for pid in run("ip", "netns", "pids", space).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "delete", space)


def sleeper(folder: Path) -> Path:
    """A library for LD_PRELOAD: what OpenMPI calls when nothing has arrived sleeps for 20 us."""
    source, library = folder / "sched_yield.c", folder / "sched_yield.so"
    source.write_text("#include <time.h>\n"
                      "int sched_yield(void) { struct timespec t = {0, 20000}; return nanosleep(&t, 0); }\n")
    run("g++", "-x", "c", "-O2", "-shared", "-fPIC", source, "-o", library)
    return library


def measure(network: Network, hosts: int, folder: Path, max_bytes: int) -> list[dict]:
    """The samples of all algorithms, one rank on each of the first hosts."""
    agent = folder / "agent"  # what mpirun takes for ssh: its arguments are an address and a command
    agent.write_text(f"""#!/bin/sh
host=${{1##*.}}
shift
exec ip netns exec {network.prefix}$host unshare --uts sh -c "hostname host$host; $*"
""")
    agent.chmod(0o755)
    out = folder / f"{hosts}_hosts.json"
    addresses = ",".join(f"{SUBNET}.{i}:1" for i in range(1, hosts + 1))
    # By default OpenMPI 4.1 moves what is larger than 64 KiB in one direction at a time over TCP.
    whole = 2 * max_bytes
    options = {"btl_tcp_eager_limit": whole, "btl_tcp_rndv_eager_limit": whole, "plm_rsh_agent": agent, "plm_rsh_no_tree_spawn": 1, "oob_tcp_if_include": f"{SUBNET}.0/24",
               "btl": "tcp,self", "btl_tcp_if_include": f"{SUBNET}.0/24", "mpi_yield_when_idle": 1}
    mpirun = ["mpirun", "--allow-run-as-root", "-x", f"LD_PRELOAD={sleeper(folder)}", "--host", addresses, "-np", hosts,
              *(word for key, value in options.items() for word in ("--mca", key, value))]
    calibrate = [CALIBRATE, "--platform", ROOT / "platforms/ideal.json", "-o", out, "--full", "--ranks", hosts,
                 "--algorithms", ",".join(CLOSED_FORM), "--min-bytes", 65536, "--max-bytes", max_bytes]
    begin = time.monotonic()
    run("ip", "netns", "exec", f"{network.prefix}1", "unshare", "--uts", "sh", "-c", 'hostname host1; exec "$@"', "sh",
        *mpirun, *calibrate, timeout=600)
    print(f"{hosts} hosts measured in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    file = json.loads(out.read_text())
    for warning in file["warnings"]:
        print(f"{hosts} hosts: {warning}", file=sys.stderr)
    if not all(sample["correct"] and sample["nodes"] == hosts for sample in file["samples"]):
        raise RuntimeError(f"{out}: wrong sums, or not one rank a host")
    return file["samples"]


def fit(algorithm: str, samples: list[dict]) -> tuple[float, float]:
    """Alpha in s and bandwidth in B/s with the least squares of relative errors."""
    rows = [[factor / sample["time_s"] for factor in CLOSED_FORM[algorithm](sample["ranks"], sample["bytes"])]
            for sample in samples]
    alpha_s, beta = numpy.linalg.lstsq(numpy.array(rows), numpy.ones(len(rows)), rcond=None)[0]
    return max(alpha_s, 0.0), 1 / beta


def predict(algorithm: str, alpha_s: float, bandwidth: float, sizes: list[int], folder: Path) -> dict[int, float]:
    """Time in s by size on 8 hosts, as stepcast simulates it."""
    platform = folder / f"{algorithm}.json"
    platform.write_text(json.dumps({
        "format": "stepcast.platform/1", "name": "namespaces", "source": "tests/validation/namespaces.py",
        "gpu": {"name": "none"},
        "node": {"gpus": 1, "nics": {"count": 1, "bandwidth_Bps": bandwidth, "alpha_s": alpha_s}},
        "fabric": {"kind": "switch"}, "nodes": PREDICTED}))
    rows = json.loads(run(STEPCAST, "collective", "--platform", platform, "--gpus", PREDICTED, "--algorithm", algorithm,
                          "--bytes", ",".join(map(str, sizes)), "--set", "chunking=plain", "--json", "-"))["rows"]
    return {row["bytes"]: row["time_s"] for row in rows}


def compare(samples: list[dict], folder: Path) -> tuple[str, float]:
    """The table, and the worst error."""
    lines = ["| algorithm | bytes | measured ms | predicted ms | error |", "|---|---|---|---|---|"]
    errors = []
    for algorithm in CLOSED_FORM:
        mine = [sample for sample in samples if sample["algorithm"] == algorithm]
        alpha_s, bandwidth = fit(algorithm, [sample for sample in mine if sample["ranks"] in FITTED])
        print(f"{algorithm}: alpha {alpha_s * 1e6:.0f} us, {bandwidth * 8e-6:.1f} Mbit/s", file=sys.stderr)
        measured = {sample["bytes"]: sample["time_s"] for sample in mine if sample["ranks"] == PREDICTED}
        predicted = predict(algorithm, alpha_s, bandwidth, sorted(measured), folder)
        for size in sorted(measured):
            errors.append(predicted[size] / measured[size] - 1)
            lines.append(f"| {algorithm} | {size} | {measured[size] * 1e3:.2f} | {predicted[size] * 1e3:.2f} | "
                         f"{errors[-1]:+.1%} |")
    sizes = [abs(error) for error in errors]
    lines.append(f"\nmedian error {statistics.median(sizes):.1%}, worst {max(sizes):.1%}")
    return "\n".join(lines), max(sizes)


def validate(rate_mbit: int, max_bytes: int, keep: Path | None):
    if os.geteuid() != 0:
        raise Lacking("needs root")
    for program in ("ip", "tc", "mpirun", "unshare", "g++", STEPCAST, CALIBRATE):
        if not shutil.which(program):
            raise Lacking(f"{program}: not found")
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(exist_ok=True)
        network = Network(PREDICTED, rate_mbit, stack)
        samples = [sample for hosts in (*FITTED, PREDICTED)
                   for sample in measure(network, hosts, folder, max_bytes)]
        table, worst = compare(samples, folder)
        print(table)
        if worst > LARGEST_ERROR:
            raise RuntimeError(f"the worst error is above {LARGEST_ERROR:.0%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate-Mbit", type=int, default=50, dest="rate_mbit", help="of each link (50)")
    parser.add_argument("--max-bytes", type=int, default=4 << 20, help="largest buffer (4194304)")
    parser.add_argument("--keep", type=Path, help="folder for the calibrations and platforms")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        validate(options.rate_mbit, options.max_bytes, options.keep)
    except Lacking as error:
        print(f"namespaces.py: skipped: {error}", file=sys.stderr)
        sys.exit(LACKING)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        sys.exit(f"namespaces.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
