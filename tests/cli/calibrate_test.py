"""stepcast-calibrate with MPI in the place of NCCL: what it writes, and what it does when it is stopped."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = Path(os.environ.get("STEPCAST", ROOT / "build/release/stepcast"))
CALIBRATE = STEPCAST.parent / "stepcast-calibrate-mpi"
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
IDEAL = ROOT / "platforms/ideal.json"
SMALL = ["--platform", IDEAL, "--collectives-only", "--max-bytes", "65536"]

pytestmark = pytest.mark.skipif(not CALIBRATE.exists(), reason="built without OpenMPI")


def calibrate(*arguments, ranks=2, mpirun=()):
    """With one rank without mpirun, whose own message would follow that of a failure."""
    launcher = [*MPIRUN, "-np", str(ranks), *mpirun] if ranks > 1 else []
    return subprocess.run([*launcher, CALIBRATE, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def refused(*arguments, code=2):
    done = calibrate(*arguments, ranks=1)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("stepcast-calibrate: ").rstrip("\n")


def test_stepcast_reads_it_and_gives_its_times_back(tmp_path):
    out = tmp_path / "out.json"
    assert calibrate(*SMALL, "-o", out).returncode == 0
    file = json.loads(out.read_text())
    assert file["machine"] == json.loads(IDEAL.read_text())
    schema = json.loads((ROOT / "docs/schemas/calibration.schema.json").read_text())
    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(file)] == []
    # The ranks share a node here, which the platform has no room for: as if they were on two.
    for sample in file["samples"]:
        sample["nodes"] = 2
    out.write_text(json.dumps(file))
    plain = {s["bytes"]: s["time_s"] for s in file["samples"] if s["operation"] == "all_reduce"
             and not {"algorithm", "single_shot"} & s.keys()}
    done = subprocess.run([STEPCAST, "collective", "--platform", IDEAL, "--calibration", out, "--gpus", "2", "--bytes",
                           ",".join(map(str, plain)), "--json", "-"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) > 3
    for row in rows:
        assert (row["basis"], row["time_s"]) == ("measured", pytest.approx(plain[row["bytes"]], rel=1e-9))


def test_collectives_are_measured_and_correct(tmp_path):
    out = tmp_path / "out.json"
    done = calibrate(*SMALL, "-o", out)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    file = json.loads(out.read_text())
    assert (file["format"], file["platform"]) == ("stepcast.calibration/1", json.loads(IDEAL.read_text())["name"])
    assert "Open MPI" in file["versions"]["mpi"]
    samples = file["samples"]
    assert {sample["operation"] for sample in samples} == {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}
    assert {sample.get("algorithm") for sample in samples} == {
        None, "ring", "recursive_doubling", "recursive_halving_doubling"}
    for sample in samples:
        assert sample["correct"] and sample["ranks"] == 2 and sample["nodes"] == 1, sample
        assert 0 < sample["min_s"] <= sample["time_s"] <= sample["p90_s"], sample
    time_s = {sample["bytes"]: sample["time_s"] for sample in samples if sample["operation"] == "all_gather"}
    assert time_s[32768] > time_s[8]


def test_the_forced_algorithm_decides_who_sends_what_to_whom(tmp_path):
    """OpenMPI's monitoring counts the bytes that rank 0 of 4 sends to each peer."""
    share = {}
    for algorithm in ("ring", "recursive_doubling", "recursive_halving_doubling"):
        done = calibrate(
            "--platform", IDEAL, "-o", tmp_path / f"{algorithm}.json", "--algorithms", algorithm, "--ranks", "4",
            "--min-bytes", "4MiB", "--max-bytes", "4MiB", ranks=4,
            mpirun=["--mca", "pml_monitoring_enable", "1", "--mca", "pml_monitoring_enable_output", "3",
                    "--mca", "pml_monitoring_filename", tmp_path / algorithm])
        assert done.returncode == 0, done.stderr
        sent = {1: 0, 2: 0, 3: 0}
        for line in (tmp_path / f"{algorithm}.0.prof").read_text().splitlines():
            fields = line.split()
            if fields[0] == "E" and fields[2] in "123":
                sent[int(fields[2])] += int(fields[3])
        share[algorithm] = [round(sent[peer] / sum(sent.values()), 1) for peer in sent]
    assert share == {
        "ring": [1.0, 0.0, 0.0],                        # only to the next
        "recursive_doubling": [0.5, 0.5, 0.0],          # S to each of log2(4) partners
        "recursive_halving_doubling": [0.7, 0.3, 0.0],  # twice S/2 to the first, twice S/4 to the second
    }


def test_attention_is_measured_alone_and_beside_a_collective_and_is_correct(tmp_path):
    out = tmp_path / "out.json"
    done = calibrate("--platform", IDEAL, "-o", out, "--kernels", "attention", "--max-bytes", "65536")
    assert done.returncode == 0, done.stderr
    file = json.loads(out.read_text())
    schema = json.loads((ROOT / "docs/schemas/calibration.schema.json").read_text())
    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(file)] == []
    shape = {"kernel": "attention", "batch": 1, "heads": 12, "sequence_length": 128, "head_size": 64}
    assert [case["dtype"] for case in file["compute"]] == ["float32", "float64"]
    for case in file["compute"]:
        assert shape.items() <= case.items()
        assert case["correct"] and 0 < case["min_s"] <= case["time_s"] <= case["p90_s"], case
    assert file["samples"] == []
    (pair,) = file["interference"]
    assert pair["compute"] == {**shape, "dtype": "float32"}
    assert pair["collective"] == {"operation": "all_reduce", "ranks": 2, "bytes": 65536}
    assert all(pair[key] > 0 for key in ("compute_alone_s", "collective_alone_s", "collective_beside_s"))
    # The one is waited for after the other here, so both at once take as long as the kernel at least.
    assert pair["collective_beside_s"] >= pair["compute_beside_s"] > 0
    assert {entry["reason"] for entry in file["skipped"]} == {"takes seconds on a processor"}
    # stepcast knows the keys.
    done = subprocess.run([STEPCAST, "collective", "--platform", IDEAL, "--calibration", out, "--gpus", "2", "--bytes",
                           "1MiB"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_dry_run_lists_the_cases_and_measures_nothing(tmp_path):
    done = calibrate(*SMALL, "--dry-run", "-o", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    *cases, total = done.stdout.splitlines()
    assert "all_reduce 8 B, 2 ranks" in cases
    assert total.startswith(f"{len(cases)} cases, about ")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_measured_is_listed_with_the_reason():
    done = calibrate("--dry-run", ranks=1)
    assert "layer_norm float32 1 MiB  -- skipped: no such kernel on a processor" in done.stdout
    assert ("convolution_forward float32 NCHW 32 x 64 x 56 x 56, 64 filters 3 x 3, stride 1  -- skipped: no convolutions "
            "on a processor") in done.stdout


def test_devices_are_one_line_of_json():
    done = calibrate("--devices", ranks=1)
    assert json.loads(done.stdout).keys() == {"cpu", "mpi"}


def test_an_output_that_exists_is_refused_and_kept(tmp_path):
    out = tmp_path / "out.json"
    out.write_text("mine")
    assert refused("--platform", IDEAL, "-o", out) == f"{out}: exists already; remove it or give another -o"
    assert out.read_text() == "mine"


@pytest.mark.parametrize("arguments, problem", [
    ([], "--platform: is required"),
    (["--ranks", "3", "--dry-run"], "--ranks: 3 of 1"),
    (["--collectives-only", "--dry-run"], "nothing to measure with these options on 1 rank(s)"),
    (["--kernels", "gemm,gem"],
     "--kernels: unknown \"gem\"; known: empty_kernel, empty_graph_node, gemm, attention, convolution_forward, "
     "convolution_backward_data, convolution_backward_filter, copy, add, reduction, layer_norm, host_to_device, "
     "device_to_host"),
    (["--backend", "cuda"], "--backend: this program is built for mpi only"),
])
def test_wrong_options_are_refused_with_one_line(arguments, problem):
    assert refused(*arguments) == problem


def stop_after(lines, journal, arguments):
    """Ctrl-C once the journal has so many lines."""
    process = subprocess.Popen([CALIBRATE, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not journal.exists() or journal.read_text().count("\n") < lines:
        assert process.poll() is None and time.monotonic() < deadline, "it ended or hung before it was stopped"
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    return process, process.communicate(timeout=60)[1]


def test_after_ctrl_c_the_same_command_goes_on(tmp_path):
    out, journal = tmp_path / "out.json", tmp_path / "out.json.partial"
    arguments = ["--platform", IDEAL, "-o", out]
    cases = calibrate("--dry-run", ranks=1).stdout.splitlines()[:-1]
    process, said = stop_after(3, journal, arguments)
    assert process.returncode == 130
    before = journal.read_text()
    assert said == (f"stepcast-calibrate: stopped after {before.count(chr(10)) - 1} of {len(cases)} cases; "
                    "the same command goes on\n")
    assert not out.exists()
    process, _ = stop_after(before.count("\n") + 1, journal, arguments)
    assert process.returncode == 130
    assert journal.read_text().startswith(before)

    assert "is of other options or another machine" in refused(*arguments, "--full")
    assert calibrate(*arguments, ranks=1).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    first = json.loads(before.splitlines()[-1])["entry"]
    file = json.loads(out.read_text())
    assert first in file["compute"] + file["skipped"]
