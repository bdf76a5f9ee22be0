"""stepcast fit and stepcast validate, on logs made up here and on calibrations of the repository."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
PLATFORM = ROOT / "platforms/dgx_a100.json"


def stepcast(*arguments, cwd=ROOT):
    return subprocess.run([STEPCAST, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)


def refused(*arguments):
    done = stepcast(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("stepcast: ").rstrip("\n")


def times(ranks=8, nodes=1):
    """s by size, 1 KiB to 256 MiB: 20 us and 100 GB/s in one node, 40 us and 50 GB/s over several."""
    return {2**p: (2e-5 + 2**p / 100e9) * (1 if nodes == 1 else 2) for p in range(10, 29)}


def log(folder, name, ranks=8, nodes=1, change=lambda size, time: time):
    lines = [f"# nThread 1 nGpus 1 minBytes 1024 maxBytes 268435456 step: 2(factor) warmup iters: 5 iters: 20",
             "# Using devices"]
    for rank in range(ranks):
        lines.append(f"#  Rank {rank:2} Group  0 Pid {1000 + rank} on node{rank * nodes // ranks} device {rank % 8} "
                     "[0x07] A made-up GPU")
    lines += ["#", "#       size         count      type   redop    root     time   algbw   busbw #wrong",
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "]
    for size, time in times(ranks, nodes).items():
        time = change(size, time)
        algbw = size / time / 1e9
        half = f"{time * 1e6:8.2f} {algbw:7.2f} {algbw * 2 * (ranks - 1) / ranks:7.2f} {0:6}"
        lines.append(f"{size:12} {size // 4:12} {'float':>9} {'sum':>7} {-1:7} {half}")
    lines.append("# Avg bus bandwidth    : 1.0")
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_becomes_a_calibration_that_gives_its_times_back(tmp_path):
    out = tmp_path / "fit.calibration.json"
    done = stepcast("fit", log(tmp_path, "one.txt"), log(tmp_path, "two.txt", 16, 2), "--platform", PLATFORM, "-o", out,
                    "--name", "made up")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    file = json.loads(out.read_text())
    assert file["machine"] == json.loads(PLATFORM.read_text())
    assert [(c["ranks"], c["nodes"]) for c in file["curves"]] == [(8, 1), (16, 2)]
    regime, = file["curves"][0]["regimes"]
    assert regime["overhead_s"]["value"] == pytest.approx(2e-5, rel=0.01)
    assert regime["rate_Bps"]["value"] == pytest.approx(100e9, rel=0.01)

    def predicted(*arguments):
        shown = stepcast("collective", "--platform", PLATFORM, "--calibration", out, "--json", "-", *arguments)
        assert shown.returncode == 0, shown.stderr
        return [(row["basis"], row["time_s"]) for row in json.loads(shown.stdout)["rows"]]

    (measured, time), (between, other) = predicted("--gpus", 8, "--bytes", "1MiB,1500000")
    assert (measured, between) == ("measured", "interpolated")
    assert time == pytest.approx(times()[1 << 20], rel=1e-3)  # two digits of us in the log
    assert other == pytest.approx(2e-5 + 1.5e6 / 100e9, rel=1e-3)
    assert predicted("--gpus", 16, "--bytes", "64MiB") == [
        ("measured", pytest.approx(times(16, 2)[64 << 20], rel=1e-3))]
    # Beyond, and with other settings, only the level is measured.
    for arguments in (("--gpus", 8, "--bytes", "1GiB"), ("--gpus", 32, "--bytes", "1MiB"),
                      ("--gpus", 8, "--bytes", "1MiB", "--channels", "2")):
        assert [basis for basis, _ in predicted(*arguments)] == ["extrapolated"], arguments


def test_calibrations_become_one_that_keeps_everything(tmp_path):
    one, two, both = (tmp_path / f"{name}.json" for name in ("one", "two", "both"))
    assert stepcast("fit", log(tmp_path, "one.txt"), "--platform", PLATFORM, "-o", one).returncode == 0
    assert stepcast("fit", log(tmp_path, "two.txt", 16, 2), "--platform", PLATFORM, "-o", two).returncode == 0
    measured = json.loads(two.read_text())
    kernel = {"kernel": "copy", "bytes": 8, "time_s": 1e-6}
    measured |= {"compute": [kernel], "warnings": ["made up"], "versions": {"gpu": "A100"}}
    measured["samples"][0]["min_s"] = 1e-6
    two.write_text(json.dumps(measured))
    assert stepcast("fit", one, two, "--platform", PLATFORM, "-o", both).returncode == 0
    file = json.loads(both.read_text())
    assert file["samples"] == json.loads(one.read_text())["samples"] + measured["samples"]
    assert (file["compute"], file["warnings"], file["versions"]) == ([kernel], ["made up"], {"gpu": "A100"})
    assert [(c["ranks"], c["nodes"]) for c in file["curves"]] == [(8, 1), (16, 2)]
    assert set(file["links"]) == {"intra_node_Bps", "inter_node_Bps"}


def test_overheads_are_fitted_where_the_logs_determine_them(tmp_path):
    one, two, out = log(tmp_path, "one.txt"), log(tmp_path, "two.txt", 16, 2), tmp_path / "out.json"
    alone = stepcast("fit", one, "--platform", PLATFORM, "-o", out, "--report")
    assert alone.returncode == 0, alone.stderr
    assert ("LL: overheads not determined: launch and hops cannot be told apart; "
            "more numbers of ranks or nodes would\n") in alone.stdout
    assert "protocols" not in json.loads(out.read_text())

    both = stepcast("fit", one, two, "--platform", PLATFORM, "-o", out, "--report")
    assert both.returncode == 0, both.stderr
    protocol = next(entry for entry in json.loads(out.read_text())["protocols"] if entry["name"] == "LL")
    # 20 us more for two nodes, two hops of a tree: 10 us each, but that the sizes do not follow LL's rate.
    hop = protocol["latency_inter_node_s"]
    assert hop["value"] == pytest.approx(10e-6, rel=0.25)
    assert 0 < hop["stderr"] < hop["value"] / 2
    assert protocol["latency_intra_node_s"]["value"] == 0.6e-6
    assert "not determined" in protocol["latency_intra_node_s"]["source"]
    assert "range" not in protocol
    assert f"hop between nodes {hop['value'] * 1e6:.4g} +- " in both.stdout
    assert "hop inside a node 0.6 us (not determined)" in both.stdout


def test_a_what_if_keeps_the_level_of_the_machine(tmp_path):
    """Slower NICs make a measured collective slower by as much as they make the mechanism."""
    out = tmp_path / "fit.calibration.json"
    assert stepcast("fit", log(tmp_path, "two.txt", 16, 2), "--platform", PLATFORM, "-o", out).returncode == 0
    slower = json.loads(PLATFORM.read_text())
    slower["node"]["nics"]["bandwidth_Bps"] /= 4
    other = tmp_path / "slower.json"
    other.write_text(json.dumps(slower))

    def time(platform, *arguments):
        done = stepcast("collective", "--platform", platform, "--gpus", 16, "--bytes", "256MiB", "--json", "-", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"][0]["time_s"]

    ratio = time(other, "--calibration", out) / time(PLATFORM, "--calibration", out)
    file = json.loads(out.read_text())
    del file["samples"]  # what is left gives the mechanism its rates
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps(file))
    assert ratio == pytest.approx(
        time(other, "--calibration", rates) / time(PLATFORM, "--calibration", rates), rel=1e-6)
    assert ratio > 3


def test_the_report_names_regimes_and_outliers(tmp_path):
    path = log(tmp_path, "odd.txt", change=lambda size, time: 3 * time if size == 1 << 20 else time)
    done = stepcast("fit", path)
    assert done.returncode == 0
    assert "all_reduce          8      1  auto" in done.stdout
    assert "outliers: 1 MiB\n" in done.stdout
    assert done.stdout.endswith("1 of 1 logs read, 0 refused\n")


def test_what_a_log_does_not_tell_is_asked_for(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("\n".join(line for line in log(tmp_path, "whole.txt").read_text().splitlines() if "Rank" not in line))
    out = tmp_path / "out.json"
    assert refused("fit", path, "--platform", PLATFORM, "-o", out) == (
        f"rows.txt:6: does not tell the number of nodes; give {path}@nodes=...")
    assert not out.exists()
    assert stepcast("fit", f"{path}@nodes=1,protocol=LL", "--platform", PLATFORM, "-o", out).returncode == 0
    assert {(s["nodes"], s["protocol"]) for s in json.loads(out.read_text())["samples"]} == {(1, "LL")}


@pytest.mark.parametrize("arguments, error", [
    ([], "stepcast fit: name logs of nccl-tests, such as all_reduce.txt"),
    (["missing.txt"], "missing.txt: cannot be read"),
    (["tests"], "tests: is a folder"),
    (["README.md@rank=8"], 'README.md@rank=8: unknown key "rank"; did you mean "ranks"? known: op, ranks, nodes, algorithm, protocol'),
    (["README.md@ranks=0"], "README.md@ranks=0: ranks must be a whole number in [1, 1048576], got 0"),
    (["README.md@protocol=ll"], 'README.md@protocol=ll: unknown protocol "ll"; did you mean "LL"? known: LL, LL128, Simple'),
    (["README.md@ranks"], "README.md@ranks: must be FILE@KEY=VALUE,..., got ranks"),
    (["README.md", "-o", "x.json"], "--platform: must be given with -o: the machines that were measured"),
])
def test_mistakes(arguments, error):
    assert refused("fit", *arguments) == error


def test_validation_leaves_out_and_predicts(tmp_path):
    # Affine in the size: nothing is lost.
    done = stepcast("validate", "collectives", log(tmp_path, "one.txt"))
    assert done.returncode == 0
    worst = float(done.stdout.splitlines()[1].split()[-6])
    assert worst <= 0.1, done.stdout
    # ABCI has 1 to 8 nodes: 8 are predicted from up to 4.
    done = stepcast("validate", "collectives", "platforms/abci_v100.calibration.json")
    lines = done.stdout.splitlines()
    from_few = next(i for i, line in enumerate(lines) if line.startswith("more than 4 nodes, from up to 4"))
    median = float(lines[from_few + 2].split()[4])
    assert lines[from_few + 2].startswith("all of them") and median <= 10, done.stdout
    assert refused("validate", "steps") == 'stepcast validate: unknown "steps"; known: accumulation, collectives, ddp, hkbu, pollux, schedules, traces'


def test_calibrations_are_listed():
    done = stepcast("list", "calibrations")
    assert done.returncode == 0
    files = sorted(path.name for path in (ROOT / "platforms").glob("*.calibration.json"))
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [f"platforms/{name}" for name in files]


def test_every_calibration_is_of_its_platform():
    for path in (ROOT / "platforms").glob("*.calibration.json"):
        file = json.loads(path.read_text())
        machine = ROOT / "platforms" / path.name.replace(".calibration", "")
        platform = json.loads(machine.read_text())
        for key in [key for key in platform["node"] if key.startswith("price_")]:
            del platform["node"][key]  # a price of today says nothing about what was measured
        assert file["machine"] == platform, path
