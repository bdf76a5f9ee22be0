#!/usr/bin/env python3
"""Makes the calibrations of platforms/ from nccl-tests logs that others have published.

    build/venv/bin/python platforms/make_calibrations.py LOG_DIR [NAME...]

LOG_DIR holds the logs that the table below names. NAME is that of a platform file without .json;
without one all are made. Each calibration is one call of `stepcast fit`, which writes
platforms/NAME.calibration.json. platforms/abci_v100.calibration.json is not among them: it is of
make_abci_v100_calibration.py.

A log tells its operation, ranks and nodes, or the table does. Which algorithm and protocol were
forced no log tells. Where only a part of a log is sound, `sizes` names it, in bytes; the rest is
left out.
"""

import dataclasses
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = ROOT / "build/release/stepcast"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
ANY = 1 << 60  # B, more than any log has

GITHUB = "https://github.com/"
ABCI = GITHUB + "aistabci/abci2.0benchmark/blob/f0aa27f2fbbbc09b71d1765c83693f0beef8b43f/"
ALPS = (
    GITHUB + "boeschf/nccl-benchmark-on-alps-2025/blob/897cff446b5e814a0a991f94dd52559df8cdf9e0/"
    "results/nccl-tests_nccl-2.23.4-1-aws-1.9.2-v0/"
)
ALCF = GITHUB + "argonne-lcf/alcf-nccl-tests/blob/385be33604ccebd32691c0805b5803eba7109b5d/"
POLARIS_TWO = ALCF + "results_polaris/nccl_2_18/n2.g4.2024-04-29-18-41-24/"
POLARIS_EIGHT = ALCF + "results_polaris/nccl_2_18/n8.g4.2024-04-29-18-14-00/"
SUPERBENCH = (
    GITHUB + "microsoft/superbenchmark/blob/700d6501f110ed17a7016f1b9f2e453926f7b7a1/tests/data/"
)
AWS_SAMPLES = (
    GITHUB + "aws-samples/awsome-distributed-training/blob/"
    "7217859f67bc693c52ff175ccc6082c41dbd7a1b/micro-benchmarks/nccl-tests/"
)
P5_TEST = (
    GITHUB + "KeitaW/p5-nccl-test-2024-07-19/blob/1c78584b9f4c621b1779270e1cf0b8d6f3daec11/"
)
XXRJUN = (
    GITHUB + "xxrjun/nccl-tests-cluster/blob/455de4f8dee2fa94cd4044a7109fd8c576f9e6c1/"
    "benchmarks/example-cluster01/nccl-benchmark-results/"
)
XXRJUN_ONE = XXRJUN + "single-node/runs/20260128-145017/without-debug/logs/"
XXRJUN_TEN = XXRJUN + "multi-node/runs/20260129-180219/without-debug/logs/"
DSTACK = (
    GITHUB + "dstackai/dstack/blob/511c318c8a7672fb2a925041bfc2d7301a26272e/mkdocs/docs/examples/"
)
STAS = GITHUB + "stas00/ml-engineering/blob/744d01e18b79512572f64a6bbd8b5f4a725203a7/network/"
CS244C = (
    GITHUB + "yumibyte/CS244C-Research/blob/a5411ed5f3dc3c1dd4efe0fada0d3f5a571b58a8/"
    "phase1-baseline/"
)
L40S_TWO = CS244C + "nvidial40s_2gpu_results/"
L40S_FOUR = CS244C + "nvidial40s_4gpu_results/"
AMD_DEV = GITHUB + "ylerman-dn/amd-dev/blob/ababbc4934cdbe10d0c6b83d8a384cb96813afde/"
AMD_DEV_LATER = GITHUB + "ylerman-dn/amd-dev/blob/35a9c00712af648075f1b2020d2caa11637c08bd/"
ONE_NODE = "results-tuning/2026-08-03-6-acceptmap/"
TWO_NODES = "results-tuning/2026-08-03-9-multinode/2n/"

TREE = "double_binary_tree"


@dataclasses.dataclass(frozen=True)
class Log:
    file: str  # in LOG_DIR, without .txt
    url: str  # where it was published
    op: str | None = None
    ranks: int | None = None
    nodes: int | None = None
    algorithm: str | None = None
    protocol: str | None = None
    sizes: tuple[tuple[int, int], ...] = ()  # from, to; all of them if empty

    def argument(self) -> str:
        told = [
            f"{key}={getattr(self, key)}"
            for key in ("op", "ranks", "nodes", "algorithm", "protocol")
            if getattr(self, key) is not None
        ]
        return f"{self.file}.txt" + ("@" + ",".join(told) if told else "")


@dataclasses.dataclass(frozen=True)
class Calibration:
    name: str  # for people
    logs: tuple[Log, ...]
    nccl: str | None = None  # None: not known
    date: str | None = None
    note: str = ""  # what a reader of the calibration should know


CALIBRATIONS = {
    # The runs on 8 nodes are left out: all_reduce gets 15 GB/s there, beside 31 on 4 and 26 on 16.
    "abci_a100": Calibration(
        "ABCI A100, NCCL 2.8.4",
        nccl="2.8.4",
        date="2021-06",
        note="4 B to 32 MiB only",
        logs=(
            Log("abci-a100-1n4g-ar", ABCI + "allreduce/intra_anode/job04.sh.7280520.nccl"),
            Log("abci-a100-1n8g-ar", ABCI + "allreduce/intra_anode/job08.sh.7280517.nccl"),
            Log("abci-a100-2n16g-ar", ABCI + "allreduce/inter_anode/job02.sh.7194279.nccl"),
            Log("abci-a100-4n32g-ar", ABCI + "allreduce/inter_anode/job04.sh.7194285.nccl"),
            Log("abci-a100-1n4g-bc", ABCI + "bcast/intra_anode/job04.sh.7280579.nccl"),
            Log("abci-a100-1n8g-bc", ABCI + "bcast/intra_anode/job08.sh.7280576.nccl"),
            Log("abci-a100-2n16g-bc", ABCI + "bcast/inter_anode/job02.sh.7194646.nccl"),
            Log("abci-a100-4n32g-bc", ABCI + "bcast/inter_anode/job04.sh.7194647.nccl"),
        ),
    ),
    # Between 64 KiB and 1 MiB several nodes are slower than at 2 MiB (0.9 ms and 0.13 ms on two).
    # That is how this machine was, and it is not left out.
    "alps_gh200": Calibration(
        "Alps GH200, NCCL 2.23.4",
        nccl="2.23.4",
        date="2025",
        note="aws-ofi-nccl 1.9.2; 64 KiB to 1 MiB over several nodes are slow on this network",
        logs=(
            Log("alps-gh200-1n4g-ar", ALPS + "job-n-00004-N-0001.txt", nodes=1),
            Log("alps-gh200-2n8g-ar", ALPS + "job-n-00008-N-0002-142909.out"),
            Log("alps-gh200-4n16g-ar", ALPS + "job-n-00016-N-0004-142910.out"),
            Log("alps-gh200-16n64g-ar", ALPS + "job-n-00064-N-0016-142912.out"),
        ),
    ),
    # Environment 4 of the five in the README, which its authors recommend for these operations. 1
    # and 2 are TCP. 3 agrees but for 8 MiB and 128 KiB (+40 %). 5 is for alltoall and up to 2.3
    # times as slow from 256 KiB to 8 MiB, as its authors say. NCCL 2.21.5 is 1.5 to 3.2 times as
    # slow from 256 KiB to 4 MiB, a little faster below and alike above; it has two nodes only.
    # Sirius has the same nodes and agrees.
    "polaris_a100": Calibration(
        "Polaris A100, NCCL 2.18.3",
        nccl="2.18.3",  # that of HPC SDK 23.9, which the runs' ldd.dat names
        date="2024-04-29",
        note="aws-ofi-nccl, environment 4 of the repository's README",
        logs=(
            Log(
                "polaris-a100-2n8g-ar-nccl2.18-env4",
                POLARIS_TWO + "all_reduce_output.dat.4",
            ),
            Log(
                "polaris-a100-8n32g-ar-nccl2.18-env4",
                POLARIS_EIGHT + "all_reduce_output.dat.4",
            ),
            Log(
                "polaris-a100-2n8g-ag-nccl2.18-env4",
                POLARIS_TWO + "all_gather_output.dat.4",
            ),
            Log(
                "polaris-a100-8n32g-ag-nccl2.18-env4",
                POLARIS_EIGHT + "all_gather_output.dat.4",
            ),
        ),
    ),
    # Two nodes: ALCF Sophia, whose two environments agree within 8 %. Not deepops-dgxa100 (up to
    # 1.8 times as slow from 64 KiB to 512 KiB, older), not aks-a100 (single slow sizes: 512 KiB
    # takes 4 times as long out of place as in place), not oci-a100 (16 x 100 Gb/s RoCE, 1 GiB and
    # more, which agrees), not nccl812 (8 to 256 B, 93 us beside 35). One node: Azure's NDv4 from
    # SuperBench, from 16 MiB up: one process drives all 8 GPUs there, and 8 B take 35 us, where a
    # process for each takes 17 us (ABCI). Not a100-40g-8g-ar-default (a cloud with 55 us for 8 B
    # and 20 % more time for 128 MiB) and not stas-a100, which agrees and tells less.
    "dgx_a100": Calibration(
        "A100 with 8 x HDR, NCCL 2.22.3",
        nccl="2.22.3",  # of Sophia; SuperBench's log does not tell
        date="2024-10-15",
        note="two nodes: ALCF Sophia; one node, 16 MiB and more: Azure NDv4, another NCCL",
        logs=(
            Log(
                "sophia-a100-2n16g-ar-env2",
                ALCF + "results_sophia/n2.g8/2024-10-15-11-21-15/all_reduce_output.dat.2",
            ),
            Log(
                "sophia-a100-2n16g-ar-env6",
                ALCF + "results_sophia/n2.g8/2024-10-15-11-21-15/all_reduce_output.dat.6",
            ),
            Log(
                "sophia-a100-2n16g-ag-env2",
                ALCF + "results_sophia/n2.g8/2024-10-15-11-21-15/all_gather_output.dat.2",
            ),
            Log(
                "superbench-a100-1n8g-ar",
                SUPERBENCH + "nccl_allreduce.log",
                sizes=((16 * MIB, ANY),),
            ),
            Log(
                "superbench-a100-1n8g-ag",
                SUPERBENCH + "nccl_allgather.log",
                op="all_gather",
                sizes=((16 * MIB, ANY),),
            ),
        ),
    ),
    # 32 MiB and more, so nothing is learnt of overheads. Ten nodes with 1, 2 and 4 GPUs of each.
    "dgx_h100": Calibration(
        "HGX H100 with 400 Gb/s NICs, NCCL 2.29.2",
        nccl="2.29.2",
        date="2026-01-29",
        note="32 MiB to 16 GiB only; on ten nodes at most 4 GPUs of each",
        logs=(
            Log("h100-xx01-1n4g-ar", XXRJUN_ONE + "nccl_N1_G4_cnode3-002.log"),
            Log("h100-xx01-1n4g-rs", XXRJUN_ONE + "nccl_N1_G4_cnode3-002.log"),
            Log("h100-xx01-1n8g-ar", XXRJUN_ONE + "nccl_N1_G8_cnode3-002.log"),
            Log("h100-xx01-1n8g-ag", XXRJUN_ONE + "nccl_N1_G8_cnode3-002.log"),
            Log("h100-xx01-1n8g-rs", XXRJUN_ONE + "nccl_N1_G8_cnode3-002.log"),
            Log("h100-xx01-10n10g-ar", XXRJUN_TEN + "nccl_N10_G1.log"),
            Log("h100-xx01-10n10g-ag", XXRJUN_TEN + "nccl_N10_G1.log"),
            Log("h100-xx01-10n10g-rs", XXRJUN_TEN + "nccl_N10_G1.log"),
            Log("h100-xx01-10n20g-ar", XXRJUN_TEN + "nccl_N10_G2.log"),
            Log("h100-xx01-10n40g-ar", XXRJUN_TEN + "nccl_N10_G4.log"),
        ),
    ),
    # Of the two full logs on two nodes the one that tells its NCCL. aws-p5-2n16g-ar agrees within 6
    # % from 1 MiB up and is up to 30 % slower below. aws-p5-2n16g-ar-eks-old is older software,
    # which takes 1.4 to 2.2 times as long up to 1 GiB.
    "aws_p5": Calibration(
        "AWS p5.48xlarge, NCCL 2.22.3",
        nccl="2.22.3",  # of the two nodes; the log of one does not tell
        date="2024-07-19",
        note="two nodes: NCCL_BUFFSIZE=8388608 and NCCL_P2P_NET_CHUNKSIZE=524288",
        logs=(
            Log("aws-p5-1n8g-ar", AWS_SAMPLES + "aws-batch/README.md", nodes=1),
            Log("p5-h100-2n16g-ar-mpitag-a", P5_TEST + "nccl-test-output-v2.20.3-1.log"),
        ),
    ),
    # Not gke-b200-1n2g-ag: all_gather of two GPUs reaches half of their NVLinks, and of two H100
    # little more; eight reach three quarters.
    "gcp_a4_b200": Calibration(
        "Google Cloud A4",
        note="NCCL not told; two nodes and 8 MiB to 8 GiB only",
        logs=(Log("dstack-gcp-a4-b200-2n16g-ar", DSTACK + "clusters/gcp.md", nodes=2),),
    ),
    # From PyTorch and with a wait after each call, which adds some 10 to 20 us: 8 % at 16 MiB
    # beside nccl-tests on H100, whose NVLinks are the same. Smaller sizes are left out.
    "h200_8gpu": Calibration(
        "8 H200, NCCL 2.27.7",
        nccl="2.27.7",
        note="not nccl-tests but torch.distributed with a wait after each call; 16 MiB and more",
        logs=(
            Log(
                "stas-h200-8g-ar-sweep-md",
                STAS + "README.md",
                nodes=1,
                sizes=((16 * MIB, ANY),),
            ),
        ),
    ),
    # RCCL honoured all of these on two nodes and ring with LL and Simple on one (SUMMARY.md beside
    # the logs), but for all_gather up to 4 MiB, which went direct. Left out, too: 256 MiB of
    # all_gather, which took 1.7 times as long out of place as in place, and what of reduce_scatter
    # lies in the stall at its start, up to 58 ms for 16 KiB. mi355x-oci is another site's and has
    # two sizes, which agree.
    "mi355x_8gpu": Calibration(
        "8 MI355X, RCCL",
        date="2026-08-03",
        note="RCCL's version is not told; algorithm and protocol forced in each run",
        logs=(
            Log(
                "mi355x-1n8g-ar-ring-simple",
                AMD_DEV + ONE_NODE + "RING_SIMPLE.csv",
                nodes=1,
                algorithm="ring",
                protocol="Simple",
            ),
            Log(
                "mi355x-1n8g-ar-ring-ll",
                AMD_DEV + ONE_NODE + "RING_LL.csv",
                nodes=1,
                algorithm="ring",
                protocol="LL",
            ),
            Log(
                "mi355x-2n16g-ar-ring-simple",
                AMD_DEV_LATER + TWO_NODES + "all_reduce__RING_SIMPLE.csv",
                nodes=2,
                algorithm="ring",
                protocol="Simple",
            ),
            Log(
                "mi355x-2n16g-ar-ring-ll",
                AMD_DEV + TWO_NODES + "all_reduce__RING_LL.csv",
                nodes=2,
                algorithm="ring",
                protocol="LL",
            ),
            Log(
                "mi355x-2n16g-ar-ring-ll128",
                AMD_DEV_LATER + TWO_NODES + "all_reduce__RING_LL128.csv",
                nodes=2,
                algorithm="ring",
                protocol="LL128",
            ),
            Log(
                "mi355x-2n16g-ar-tree-ll",
                AMD_DEV + TWO_NODES + "all_reduce__TREE_LL.csv",
                nodes=2,
                algorithm=TREE,
                protocol="LL",
            ),
            Log(
                "mi355x-2n16g-ar-tree-ll128",
                AMD_DEV_LATER + TWO_NODES + "all_reduce__TREE_LL128.csv",
                nodes=2,
                algorithm=TREE,
                protocol="LL128",
            ),
            Log(
                "mi355x-2n16g-ag-ring-simple",
                AMD_DEV + TWO_NODES + "all_gather__RING_SIMPLE.csv",
                nodes=2,
                algorithm="ring",
                protocol="Simple",
                sizes=((8 * MIB, 128 * MIB), (512 * MIB, ANY)),
            ),
            Log(
                "mi355x-2n16g-rs-ring-simple",
                AMD_DEV_LATER + TWO_NODES + "reduce_scatter__RING_SIMPLE.csv",
                nodes=2,
                algorithm="ring",
                protocol="Simple",
                sizes=((64 * KIB, ANY),),
            ),
        ),
    ),
    # Where one of algorithm and protocol was forced, the other was NCCL's choice. Repeats agree
    # within 5 %, single small sizes within 10 %. Two GPUs were one of each socket: 61 and e1 in the
    # default runs, 4a and ca in the forced ones; two on one socket are as fast
    # (platforms/l40s_4gpu.json).
    "l40s_4gpu": Calibration(
        "4 L40S, NCCL 2.29.2",
        nccl="2.29.2",
        date="2026-02-20 and 22",
        note="algorithm or protocol forced in some runs",
        logs=(
            Log("l40s-2g-ar-default", L40S_TWO + "iteration_1/2026-02-20_20-20-35.txt"),
            Log("l40s-2g-ar-default-rep2", L40S_TWO + "iteration_2/2026-02-20_20-24-34.txt"),
            Log("l40s-2g-ar-default-rep3", L40S_TWO + "iteration_3/2026-02-20_20-24-01.txt"),
            Log("l40s-2g-ar-ring", L40S_TWO + "ring/2026-02-22_14-42-09.txt", algorithm="ring"),
            Log("l40s-2g-ar-tree", L40S_TWO + "tree/2026-02-22_14-42-12.txt", algorithm=TREE),
            Log("l40s-2g-ar-ll", L40S_TWO + "auto_ll/2026-02-22_14-59-11.txt", protocol="LL"),
            Log(
                "l40s-2g-ar-ll128",
                L40S_TWO + "auto_ll128/2026-02-22_14-58-53.txt",
                protocol="LL128",
            ),
            Log(
                "l40s-2g-ar-simple",
                L40S_TWO + "auto_simple/2026-02-22_14-59-17.txt",
                protocol="Simple",
            ),
            Log("l40s-4g-ar-default", L40S_FOUR + "iteration_1/2026-02-20_20-09-16.txt"),
            Log("l40s-4g-ar-default-rep2", L40S_FOUR + "iteration_2/2026-02-20_20-27-37.txt"),
            Log("l40s-4g-ar-ring", L40S_FOUR + "ring/2026-02-22_15-07-51.txt", algorithm="ring"),
            Log("l40s-4g-ar-ll", L40S_FOUR + "auto_ll/2026-02-22_15-08-28.txt", protocol="LL"),
            Log(
                "l40s-4g-ar-simple",
                L40S_FOUR + "auto_simple/2026-02-22_15-08-38.txt",
                protocol="Simple",
            ),
        ),
    ),
    "rtx4090_4gpu": Calibration(
        "4 RTX 4090 with peer-to-peer",
        note="NCCL not told",
        logs=(
            Log(
                "rtx4090-4g-ar-p2p",
                "public GitHub file (repository not recorded, content 7963955543)",
            ),
        ),
    ),
    "rtx4090_8gpu_stock": Calibration(
        "8 RTX 4090",
        date="2025-02-07",  # of the post
        note="NCCL not told; the post is called RTX4090 GPUDirect P2P Unlocked!",
        logs=(
            Log(
                "rtx4090-8g-ar-stock",
                "public GitHub file (repository not recorded, content 41849773201)",
            ),
        ),
    ),
    # One table with a column for each of the two algorithms, which it names.
    "t4_2gpu": Calibration(
        "2 T4 (Kaggle)",
        note="NCCL not told; five sizes of at most 64 KiB, in place: nothing of rates",
        logs=(
            Log(
                "kaggle-t4-2g-ar-ring-vs-tree-md",
                "public GitHub file (repository not recorded, content 65906289304)",
                op="all_reduce",
                ranks=2,
                nodes=1,
            ),
        ),
    ),
}

UNITS = {"KiB": KIB, "MiB": MIB, "GiB": GIB}
ROWS = (
    re.compile(r"\s*(\d+)\s+\d+\s+float\s"),  # nccl-tests
    re.compile(r'\d+,"\w+",(?:\d+,){4}(\d+),"float",'),  # rccl-tests -Z csv
    re.compile(r"\|\s*(\d+)(KiB|MiB|GiB)\s*\|"),  # markdown
)


def size_of(line: str) -> int | None:
    """Bytes of a row of a table, in the layouts of the logs that have `sizes`."""
    for row in ROWS:
        if match := row.match(line):
            return int(match[1]) * UNITS[match[2]] if row.groups == 2 else int(match[1])
    return None


def sound_part(log: Log, text: str) -> str:
    if not log.sizes:
        return text
    kept, rows = [], 0
    for line in text.splitlines():
        size = size_of(line)
        if size is not None and not any(low <= size <= high for low, high in log.sizes):
            continue
        kept.append(line)
        rows += size is not None
    if rows == 0:
        sys.exit(f"{log.file}.txt: no row of the sizes that are wanted of it")
    return "\n".join(kept) + "\n"


def source_of(calibration: Calibration) -> str:
    urls = list(dict.fromkeys(log.url for log in calibration.logs))
    parts = [", ".join(urls)]
    if calibration.date:
        parts.append(f"measured {calibration.date}")
    if calibration.note:
        parts.append(calibration.note)
    parts.append("fitted by platforms/make_calibrations.py")
    return "; ".join(parts)


def make(name: str, logs: Path) -> int:
    calibration = CALIBRATIONS[name]
    command = [
        str(STEPCAST),
        "fit",
        *(log.argument() for log in calibration.logs),
        *("--platform", str(ROOT / f"platforms/{name}.json")),
        *("--name", calibration.name),
        *("--source", source_of(calibration)),
        *(("--nccl", calibration.nccl) if calibration.nccl else ()),
        *("-o", str(ROOT / f"platforms/{name}.calibration.json")),
    ]
    # Run where the logs are, so that a calibration does not tell whose directory that was.
    with tempfile.TemporaryDirectory() as folder:
        for log in calibration.logs:
            text = (logs / f"{log.file}.txt").read_text(encoding="utf-8")
            (Path(folder) / f"{log.file}.txt").write_text(sound_part(log, text), encoding="utf-8")
        return subprocess.run(command, cwd=folder, check=False).returncode


def main() -> None:
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("usage: make_calibrations.py LOG_DIR [NAME...]")
    names = sys.argv[2:] or list(CALIBRATIONS)
    for name in names:
        if name not in CALIBRATIONS:
            sys.exit(f"{name}: not a calibration; known: {', '.join(CALIBRATIONS)}")
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        if make(name, Path(sys.argv[1])) != 0:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
