"""The command line as a user meets it: results, errors of one line, nothing half written."""

import csv
import json
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
QUICKSTART = "scenarios/quickstart.json"
IDEAL = "platforms/ideal.json"


def stepcast(*arguments, cwd=ROOT):
    return subprocess.run([STEPCAST, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


def result_of(*arguments):
    """The JSON that a successful run prints."""
    done = stepcast(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def collective(*arguments):
    return result_of("collective", "--platform", IDEAL, "--json", "-", *arguments)["rows"]


def refused(*arguments, code=2):
    """The one line on stderr of a run that must fail without printing a result."""
    done = stepcast(*arguments)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("stepcast: ").rstrip("\n")


@pytest.fixture
def broken(tmp_path):
    """Makes a copy of the quickstart and its files with one change, and gives the scenario's path."""

    def make(file, change):
        for folder in ("models", "platforms", "scenarios"):
            (tmp_path / folder).mkdir(exist_ok=True)
            for source in (ROOT / folder).glob("*.json"):
                (tmp_path / folder / source.name).write_text(source.read_text())
        document = json.loads((tmp_path / file).read_text())
        change(document)
        (tmp_path / file).write_text(json.dumps(document))
        return tmp_path / QUICKSTART

    return make


# ------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("n", [2, 3, 7, 8, 64])
@pytest.mark.parametrize("engine", ["simgrid", "analytic"])
def test_ring_takes_its_closed_form(n, engine):
    row, = collective("--op", "all_reduce", "--gpus", n, "--bytes", "64MiB", "--algorithm", "ring",
                      "--channels", 1, "--chunk-bytes", "max", "--engine", engine)
    # 2(n-1) (alpha + S/(nB)) with the alpha and B of platforms/ideal.json
    expected = 2 * (n - 1) * (2e-6 + 2**26 / (n * 25e9))
    assert row["time_s"] == pytest.approx(expected, rel=1e-9)
    assert row["algbw_Bps"] == pytest.approx(2**26 / expected, rel=1e-9)
    assert row["busbw_Bps"] == pytest.approx(row["algbw_Bps"] * 2 * (n - 1) / n, rel=1e-12)
    assert row["sent_bytes_per_rank"] == pytest.approx(2 * (n - 1) / n * 2**26, rel=1e-12)
    assert row["basis"] == "mechanism"


def test_1024_ranks_take_their_closed_form():
    row, = collective("--gpus", 1024, "--bytes", "64MiB", "--channels", 1, "--engine", "analytic")
    assert row["time_s"] == pytest.approx(2046 * (2e-6 + 2**16 / 25e9), rel=1e-9)


@pytest.mark.parametrize("algorithm", ["binary_tree", "direct", "direct_one_shot", "double_binary_tree",
                                       "recursive_doubling", "recursive_halving_doubling", "ring"])
def test_every_algorithm_runs_on_real_machines(algorithm):
    assert algorithm in stepcast("list", "algorithms").stdout
    done = stepcast("collective", "--platform", "platforms/abci_v100.json", "--calibration",
                    "platforms/abci_v100.calibration.json", "--gpus", 14, "--bytes", "1,1MiB,32MiB",
                    "--algorithm", algorithm, "--json", "-")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["algorithm"] for row in rows] == 3 * [algorithm]
    assert rows[0]["time_s"] < rows[1]["time_s"] < rows[2]["time_s"]
    assert {row["basis"] for row in rows} == {"extrapolated"}  # forced, and nobody measured that


@pytest.mark.parametrize("algorithm, gpus", [("nvls", 8), ("nvls_tree", 16)])
def test_a_switch_that_sums_is_used(algorithm, gpus):
    rows = result_of("collective", "--platform", "platforms/dgx_h100.json", "--gpus", gpus, "--bytes", "64MiB,256MiB",
                     "--algorithm", algorithm, "--json", "-")["rows"]
    assert [row["algorithm"] for row in rows] == 2 * [algorithm]
    assert rows[0]["busbw_Bps"] < rows[1]["busbw_Bps"]


def test_explain_says_what_else_there_was():
    done = stepcast("collective", "--platform", "platforms/dgx_h100.json", "--gpus", 8, "--bytes", "25MiB", "--explain")
    assert "chosen by the tuner of NCCL 2.28.9" in done.stdout
    lines = [line.split(None, 3) for line in done.stdout.splitlines()]
    assert ["nvls", "Simple", "121.38", "taken"] in lines and ["ring", "LL128", "179.11", "slower"] in lines
    assert ["nvls_tree", "Simple", "-", "off on one node"] in lines


def test_nccls_own_names_are_understood():
    base = ("collective", "--platform", "platforms/dgx_a100.json", "--gpus", 8, "--bytes", "25MiB", "--json", "-")
    row, = result_of(*base, "--set", "NCCL_ALGO=Tree", "--set", "NCCL_PROTO=Simple", "--set", "NCCL_BUFFSIZE=1048576",
                     "--set", "NCCL_MAX_NCHANNELS=4")["rows"]
    assert (row["algorithm"], row["protocol"], row["channels"]) == ("double_binary_tree", "Simple", 4)
    assert row["chunk_bytes"] == 1048576 / 8  # a tree's chunk is a slot


@pytest.mark.parametrize("operation, factor", [("reduce_scatter", 7 / 8), ("all_gather", 7 / 8), ("broadcast", 1)])
def test_other_operations(operation, factor):
    row, = result_of("collective", "--platform", "platforms/dgx_a100.json", "--gpus", 8, "--bytes", "256MiB",
                     "--op", operation, "--json", "-")["rows"]
    assert row["busbw_Bps"] == pytest.approx(factor * row["algbw_Bps"])
    assert 0.6 * 240e9 < row["busbw_Bps"] < 240e9


def test_engines_print_the_same():
    sizes = ("--gpus", 6, "--bytes", "1KiB,3000000,64MiB", "--channels", 3, "--chunk-bytes", "256KiB")
    for a, b in zip(collective(*sizes, "--engine", "simgrid"), collective(*sizes, "--engine", "analytic")):
        assert a["time_s"] == pytest.approx(b["time_s"], rel=1e-9)


def test_split_adds_up_and_buckets_are_pytorchs():
    result = result_of("run", QUICKSTART, "-o", "-")
    assert [point["world_size"] for point in result["points"]] == [1, 2, 4, 8, 16, 32]
    for point in result["points"]:
        assert sum(point["split"].values()) == pytest.approx(point["step_time_s"], rel=1e-9)
        low, high = point["step_time_band_s"]
        assert low <= point["step_time_s"] <= high
        # facts of a real trace (Kineto, 2 x A100, ResNet-50 FP32, 25 MiB): elements of each bucket
        elements = [2049000, 7875584, 6563840, 6637568, 2431040] if point["world_size"] > 1 else []
        broadcasts = [53120 * 4, 53 * 8] if point["world_size"] > 1 else []
        assert [bucket["bytes"] for bucket in point["buckets"]] == broadcasts + [4 * e for e in elements]
        for before, after in zip(point["buckets"], point["buckets"][1:]):
            assert before["end_s"] <= after["start_s"]


def test_accumulation_divides_the_bytes_per_sample():
    def bytes_per_sample(*sets):
        point, = result_of("run", QUICKSTART, "--set", "cluster.gpus=8", *sets, "-o", "-")["points"]
        return point["all_reduce_bytes_per_sample"]

    assert bytes_per_sample("--set", "training.accumulation_steps=8") == pytest.approx(
        bytes_per_sample() / 8, rel=1e-12)


def test_runs_are_the_same_bytes_whatever_jobs_is():
    runs = {stepcast("run", QUICKSTART, "-o", "-", "--jobs", jobs).stdout for jobs in (1, 2, 5)}
    assert len(runs) == 1 and runs.pop()


def test_the_resolved_scenario_gives_the_same_result(tmp_path):
    first = result_of("run", QUICKSTART, "--set", "training.sync=flat", "-o", "-")
    for kind in ("model", "platform", "calibration"):
        (tmp_path / f"{kind}.json").write_text(json.dumps(first["inputs"][kind]["document"]))
        first["scenario"][kind] = f"{kind}.json"
    again = tmp_path / "again.json"
    again.write_text(json.dumps(first["scenario"]))
    assert result_of("run", again, "-o", "-")["points"] == first["points"]


def test_csv_and_trace_are_written(tmp_path):
    done = stepcast("run", QUICKSTART, "--csv", tmp_path / "r.csv", "--trace", tmp_path / "t.json",
                    "--trace-ranks", 2)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert [row["settings.cluster.gpus"] for row in rows] == ["1", "2", "4", "8", "16", "32"]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    processes = [e for e in events if e["name"] == "process_name"]
    assert len(processes) == 1 + 5 * 2  # one rank of the single GPU, two of each other point
    for process in processes:
        for track in (0, 1):
            spans = [e for e in events if e["pid"] == process["pid"] and e["ph"] == "X" and e["tid"] == track]
            for before, after in zip(spans, spans[1:]):
                assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "t.json"]


def test_what_if_the_network_were_slower():
    def exposed(*sets):
        sets = [word for text in sets for word in ("--set", text)]
        point, = result_of("run", QUICKSTART, "--set", "cluster.gpus=16", "--set",
                           "training.broadcast_buffers=false", *sets, "-o", "-")["points"]
        return point["split"]["exposed_comm_s"]

    # A calibration scales what the platform says, so that both kinds of scenario answer. 12.5e9 is what
    # the file says; a tenth of it makes nearly ten times the exposed time of the last bucket.
    for calibration in ("../platforms/abci_v100.calibration.json", "null"):
        fast = exposed(f"calibration={calibration}")
        assert exposed(f"calibration={calibration}", "platform.node.nics.bandwidth_Bps=12.5e9") == fast
        assert exposed(f"calibration={calibration}", "platform.node.nics.bandwidth_Bps=1.25e9") > 4 * fast
    assert refused("run", QUICKSTART, "--set", "platform.node.nics.alpha_s=1e-3") == (
        "--set platform.node.nics.alpha_s: has no effect beside a calibration, which has alphas of its own; "
        "set calibration=null, or one of calibration.protocols")


def test_the_number_of_nics_can_be_varied():
    rows = result_of("run", QUICKSTART, "--set", "cluster.gpus=16", "--set", "platform.node.nics.near_gpus=null",
                     "--set", "vary.platform.node.nics.count=[1,4]", "-o", "-")["points"]
    assert rows[0]["split"]["exposed_comm_s"] > 2 * rows[1]["split"]["exposed_comm_s"]


def test_a_calibration_of_another_machine_is_said():
    done = stepcast("run", QUICKSTART, "--set", "cluster.gpus=8")
    assert done.stderr == ('stepcast: warning: the calibration "ABCI V100, NCCL 2.8.4" was measured on ABCI V100, '
                           "not on DGX-1V: communication is extrapolated\n")
    at_home = ("run", QUICKSTART, "--set", "platform=../platforms/abci_v100.json", "--set", "cluster.gpus=8",
               "--set", "platform.gpu.name=V100-SXM2-32GB")
    assert stepcast(*at_home).stderr == ""
    point, = result_of(*at_home, "-o", "-")["points"]
    assert {bucket["basis"] for bucket in point["buckets"]} <= {"interpolated", "extrapolated"}


def test_help_and_lists():
    assert "stepcast run SCENARIO" in stepcast("--help").stdout
    assert "--trace-ranks" in stepcast("run", "--help").stdout
    assert "--chunk-bytes" in stepcast("collective", "--help").stdout
    assert "2(n-1)/n S" in stepcast("list", "algorithms").stdout
    assert stepcast("list", "topologies").stdout.split() == ["nvlink_mesh", "pcie_tree", "switch"]
    assert stepcast("--version").stdout.startswith("stepcast 0.")


# -------------------------------------------------------------------------------------- sweeps

# The last points take longest, so that there is time to kill it before.
SWEEP = ("run", QUICKSTART, "--engine", "simgrid", "--set", "vary.cluster.gpus=[1,4,8,32]",
         "--set", 'vary.training.bucket_cap_bytes=[1048576,5242880,26214400,104857600]')


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    whole, cut = tmp_path / "whole.json", tmp_path / "cut.json"
    part = tmp_path / "cut.json.part"
    assert stepcast(*SWEEP, "-o", whole).returncode == 0
    run = subprocess.Popen([STEPCAST, *SWEEP, "-o", str(cut), "--jobs", "1"], cwd=ROOT,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (part.exists() and part.read_bytes().count(b"\n") > 4):
        time.sleep(0.002)
    run.send_signal(signal.SIGKILL)
    run.wait()
    done = part.read_bytes().count(b"\n") - 1  # without the first line
    assert 4 <= done < 16 and not cut.exists()
    with part.open("ab") as file:
        file.write(b'{"point":{"settings":')  # a line that was cut off

    line = refused(*SWEEP, "-o", cut)
    assert line == f"-o: {part} holds points of a run that was not finished: go on with --resume, or remove it"
    line = refused(*SWEEP, "--set", "training.sync=flat", "-o", cut, "--resume")
    assert line == (f"--resume: {part} belongs to another scenario, other inputs, options or version; remove it to "
                    "start anew")
    first = json.loads(part.read_text().splitlines()[1])["point"]["settings"]
    assert stepcast(*SWEEP, "-o", cut, "--resume").returncode == 0
    assert cut.read_bytes() == whole.read_bytes()
    assert first in [point["settings"] for point in json.loads(cut.read_text())["points"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.json", "whole.json"]


def test_resume_takes_what_is_there(tmp_path):
    # A point that cannot come from this program shows that it is not simulated again.
    result, part = tmp_path / "r.json", tmp_path / "r.json.part"
    run = subprocess.Popen([STEPCAST, *SWEEP, "-o", str(result), "--jobs", "1"], cwd=ROOT,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (part.exists() and part.read_bytes().count(b"\n") > 1):
        time.sleep(0.002)
    run.kill()
    run.wait()
    lines = part.read_text().splitlines()
    entry = json.loads(lines[1])
    entry["point"]["step_time_s"] = 123.0
    part.write_text(lines[0] + "\n" + json.dumps(entry, separators=(",", ":")) + "\n")
    assert stepcast(*SWEEP, "-o", result, "--resume").returncode == 0
    points = json.loads(result.read_text())["points"]
    assert [index for index, point in enumerate(points) if point["step_time_s"] == 123.0] == [entry["index"]]


def test_a_sweep_is_the_same_bytes_whatever_jobs_is(tmp_path):
    for jobs in (1, 3):
        assert stepcast(*SWEEP, "-o", tmp_path / f"{jobs}.json", "--csv", tmp_path / f"{jobs}.csv", "--jobs",
                        jobs).returncode == 0
    for kind in ("json", "csv"):
        assert (tmp_path / f"1.{kind}").read_bytes() == (tmp_path / f"3.{kind}").read_bytes()


def test_a_point_that_fails_stands_in_the_result_and_the_rest_goes_on(tmp_path):
    # NVLS needs NVLink SHARP, which DGX-1V lacks; one GPU does not communicate.
    sweep = ("run", QUICKSTART, "--set", "vary.cluster.gpus=[1,8]", "--set", "vary.collective.algorithm=[\"ring\",\"nvls\"]")
    done = stepcast(*sweep, "-o", tmp_path / "r.json", "--csv", tmp_path / "r.csv")
    problem = f"{QUICKSTART}:/vary/collective.algorithm/1: NCCL cannot do that here"
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f"stepcast: {QUICKSTART}: cluster.gpus = 8, collective.algorithm = ")
    assert lines[-1] == "stepcast: 1 of 4 points failed"
    points = json.loads((tmp_path / "r.json").read_text())["points"]
    assert ["error" in point for point in points] == [False, False, False, True]
    assert set(points[3]) == {"settings", "error"} and "NVLink SHARP" in points[3]["error"], problem
    rows = list(csv.DictReader((tmp_path / "r.csv").open()))
    assert rows[3]["error"] == points[3]["error"] and rows[0]["error"] == "" and rows[3]["step_time_s"] == ""
    assert [line.split() for line in done.stdout.splitlines() if "failed" in line] == [["nvls", "8", "failed"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.json"]


def test_a_dry_run_prints_the_points(tmp_path):
    done = stepcast(*SWEEP, "--set", 'constraints=["cluster.gpus > 4", "training.bucket_cap_bytes < 6e6"]',
                    "--dry-run", "-o", tmp_path / "never.json")
    assert done.returncode == 0 and done.stderr == ""
    table = [line.split() for line in done.stdout.splitlines()[3:]]
    assert table == [["point", "bucket_cap_bytes", "GPUs", "micro-batch", "accumulation", "batch"],
                     ["0", "1", "MiB", "8", "32", "1", "256"], ["1", "5", "MiB", "8", "32", "1", "256"],
                     ["2", "1", "MiB", "32", "32", "1", "1024"], ["3", "5", "MiB", "32", "32", "1", "1024"]]
    assert list(tmp_path.iterdir()) == []


def test_cases_base_and_constraints_in_a_file(tmp_path):
    scenario = tmp_path / "cases.json"
    scenario.write_text(json.dumps({
        "format": "stepcast.scenario/1", "base": os.path.relpath(ROOT / QUICKSTART, tmp_path),
        "vary": {"cluster.gpus": [1, 16, 64]}, "constraints": ["cluster.gpus <= 32"],
        "cases": [{"name": "as it is", "set": {}},
                  {"name": "half the network", "set": {"platform.node.nics.bandwidth_Bps": 6.25e9}}]}))
    result = result_of("run", scenario, "-o", "-")
    assert [(p["settings"]["case"], p["world_size"]) for p in result["points"]] == [
        ("as it is", 1), ("as it is", 16), ("half the network", 1), ("half the network", 16)]
    exposed = [point["split"]["exposed_comm_s"] for point in result["points"]]
    assert exposed[3] > exposed[1] > 0
    # The result's own scenario, with its files beside it, gives the same points.
    for kind in ("model", "platform", "calibration"):
        (tmp_path / f"{kind}.json").write_text(json.dumps(result["inputs"][kind]["document"]))
        result["scenario"][kind] = f"{kind}.json"
    (tmp_path / "again.json").write_text(json.dumps(result["scenario"]))
    assert result_of("run", tmp_path / "again.json", "-o", "-")["points"] == result["points"]


def test_resume_needs_a_file():
    assert refused("run", QUICKSTART, "--resume") == (
        "--resume: needs -o FILE, beside which an interrupted run left its points")


def test_progress_on_a_terminal():
    main, terminal = os.openpty()
    run = subprocess.Popen([STEPCAST, *SWEEP, "-o", "/dev/null"], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=terminal)
    os.close(terminal)
    text = b""
    try:
        while chunk := os.read(main, 65536):
            text += chunk
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert run.wait() == 0
    assert b" of 16 points, " in text and b" left" in text and text.endswith(b"\n")
    assert stepcast(*SWEEP, "-o", "/dev/null").stderr.count("\n") == 1  # the warning: too short for a line


# ------------------------------------------------------------------------------------- compare


def test_compare_says_what_differs_what_it_changes_and_why(tmp_path):
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    for path, rate in ((fast, 12.5e9), (slow, 1.25e9)):
        assert stepcast("run", QUICKSTART, "--set", f"platform.node.nics.bandwidth_Bps={rate}", "-o", path).returncode == 0
    done = stepcast("compare", fast, slow, "--points", "4,4")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"A: {fast}, point 4, cluster.gpus = 16"
    assert lines[3:6] == ["What differs:", "  platform.node.nics.bandwidth_Bps: 12500000000.0 -> 1250000000.0", ""]
    a, b = (json.loads(path.read_text())["points"][4] for path in (fast, slow))
    rows = {line.split()[0]: line.split() for line in lines[6:20] if line}
    for name, key in (("compute", "compute_s"), ("exposed", "exposed_comm_s"), ("wait", "wait_s")):
        before, after = 1e3 * a["split"][key], 1e3 * b["split"][key]
        assert rows[name][1:5] == ["ms", f"{before:.3f}", f"{after:.3f}", f"{after - before:+.3f}"]
    change = b["step_time_s"] - a["step_time_s"]
    exposed = b["split"]["exposed_comm_s"] - a["split"]["exposed_comm_s"]
    assert exposed > 0.5 * change > 0
    assert (f"The step takes {1e3 * change:.3f} ms ({100 * change / a['step_time_s']:.1f} %) more; communication that "
            f"nothing hides explains {1e3 * exposed:+.3f} ms of it ({100 * exposed / change:.0f} %).") in lines
    assert f"Collectives are under way for {1e3 * b['comm_s']:.3f} instead of {1e3 * a['comm_s']:.3f} ms a step." in lines


def test_compare_takes_the_first_and_the_last_point(tmp_path):
    result = tmp_path / "r.json"
    assert stepcast("run", QUICKSTART, "-o", result).returncode == 0
    text = stepcast("compare", result).stdout
    assert f"A: {result}, point 0, cluster.gpus = 1\nB: {result}, point 5, cluster.gpus = 32\n" in text
    assert "  cluster.gpus: 1 -> 32\n" in text
    same = stepcast("compare", result, result, "--points", "3,3").stdout
    assert "No setting differs." in same and "The step takes the same time." in same


def test_compare_counts_by_the_sample_when_the_work_differs(tmp_path):
    result = tmp_path / "r.json"
    assert stepcast("run", QUICKSTART, "--set", "cluster.gpus=16", "--set", "vary.training.accumulation_steps=[1,4]",
                    "-o", result).returncode == 0
    a, b = json.loads(result.read_text())["points"]
    change = b["step_time_s"] / 128 - a["step_time_s"] / 32
    assert (f"For each sample that a GPU takes, the step takes {-1e3 * change:.3f} ms "
            f"({-100 * change / (a['step_time_s'] / 32):.1f} %) less; ") in stepcast("compare", result).stdout


def test_compare_refuses_what_it_cannot_compare(tmp_path):
    result = tmp_path / "r.json"
    assert stepcast("run", QUICKSTART, "--set", "vary.cluster.gpus=[1,8]", "--set",
                    'vary.collective.algorithm=["ring","nvls"]', "-o", result).returncode == 1
    assert refused("compare", result, "--points", "0,4") == f"--points: {result} has points 0 to 3, not 4"
    assert refused("compare", result).startswith(f"--points: point 3 of {result} failed: ")
    assert refused("compare", QUICKSTART) == (
        f'{QUICKSTART}:/format: must be "stepcast.result/1", got "stepcast.scenario/1"')
    assert refused("compare") == "stepcast compare: name one or two results, such as a.json b.json"
    assert refused("compare", result, "--points", "1") == "--points: must be two points such as 0,5, got 1"


# -------------------------------------------------------------------------------------- answer


def answer_of(*arguments):
    done = stepcast("run", QUICKSTART, "--answer", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout[done.stdout.index("\nAnswer\n") + 1:]


def changes_in(text):
    """The table of what would change, as fractions."""
    rows = text[text.index("would change with\n"):].splitlines()[1:]
    return {row[:-len(row.split()[-2]) - 2].strip(): float(row.split()[-2]) / 100 for row in rows}


def test_answer_says_where_the_efficiency_falls():
    text = answer_of("--threshold", "0.98")
    assert "\n  the efficiency falls under 98 % at 16 GPUs (97.5 %; 98.9 % at 8)\n" in text
    assert "at cluster.gpus = 16: " in text
    text = answer_of()
    assert "\n  the efficiency stays above 75 %: at least 97.0 %, at 32 GPUs of up to 32\n" in text
    text = answer_of("--set", "vary.training.sync=[\"ddp\",\"flat\"]", "--threshold", "0.95")
    assert "\n  training.sync = ddp: the efficiency stays above 95 %" in text
    assert "\n  training.sync = flat: the efficiency falls under 95 % at " in text


def test_answer_simulates_each_change():
    base = ("--set", "cluster.gpus=16")

    def time_per_sample(*sets):
        point, = result_of("run", QUICKSTART, *base, *[word for text in sets for word in ("--set", text)], "-o",
                           "-")["points"]
        return point["step_time_s"] / point["global_batch"]

    changes = changes_in(answer_of(*base))
    before = time_per_sample()
    nics = json.loads((ROOT / "platforms/dgx1v.json").read_text())["node"]
    sets = {
        "10 % faster network, in and between nodes": (
            f"platform.node.nics.bandwidth_Bps={1.1 * nics['nics']['bandwidth_Bps']}",
            f"platform.node.interconnect.bandwidth_Bps={1.1 * nics['interconnect']['bandwidth_Bps']}"),
        "buckets of 50 MiB instead of 25 MiB": ("training.bucket_cap_bytes=50MiB",),
        "buckets of 12.5 MiB instead of 25 MiB": ("training.bucket_cap_bytes=13107200",),
        "2 accumulation steps instead of 1": ("training.accumulation_steps=2",)}
    for name, changed in sets.items():
        assert changes[name] == pytest.approx(time_per_sample(*changed) / before - 1, abs=6e-5), name
    other, = (name for name in changes if name.endswith(", the best other algorithm"))
    times = {name: time_per_sample(f"collective.algorithm={name}") for name in
             ("binary_tree", "direct", "double_binary_tree", "hierarchical", "recursive_doubling",
              "recursive_halving_doubling")}
    assert changes[other] <= min(times.values()) / before - 1 + 6e-5
    assert changes[other] == pytest.approx(time_per_sample(f"collective.algorithm={other.split(',')[0]}") / before - 1,
                                           abs=6e-5)


def test_answer_halves_the_alphas():
    base = ("--set", "cluster.gpus=16", "--set", "calibration=null", "--set", "platform=../platforms/ideal.json",
            "--set", "training.sync=per_tensor")
    half = ("--set", "platform.node.nics.alpha_s=1e-6")  # of 2e-6
    before, after = (result_of("run", QUICKSTART, *sets, "-o", "-")["points"][0]["step_time_s"]
                     for sets in (base, base + half))
    text = answer_of(*base)
    assert changes_in(text)["half the latency (alpha)"] == pytest.approx(after / before - 1, abs=6e-5)
    assert after / before < 0.97 and "latency: exposed communication is " in text


def test_answer_names_the_bottleneck():
    slow_network = ("--set", "platform.node.nics.bandwidth_Bps=2e8", "--set", "cluster.gpus=16")
    assert ": the inter-node links: exposed communication is " in answer_of(*slow_network)
    straggler = ("--set", "cluster.gpus=16", "--set", 'imperfections={"slow_ranks":[{"rank":3,"time_factor":1.5}]}')
    assert ": stragglers: waiting for other ranks is " in answer_of(*straggler)


def test_answer_goes_to_stderr_beside_a_result_on_stdout():
    done = stepcast("run", QUICKSTART, "--set", "cluster.gpus=8", "--answer", "-o", "-")
    assert json.loads(done.stdout)["format"] == "stepcast.result/1" and "\nAnswer\n" in done.stderr
    assert refused("run", QUICKSTART, "--answer", "--threshold", "75") == "--threshold: must be in (0, 1], got 75"
    assert refused("run", QUICKSTART, "--threshold", "0.5") == "--threshold: is for --answer"


def test_a_price_gives_a_cost():
    point, = result_of("run", QUICKSTART, "--set", "platform=../platforms/aws_p5.json", "--set", "calibration=null",
                       "--set", "cluster.gpus=12", "-o", "-")["points"]
    # Two nodes at 55.04 USD an hour, of the second only half is used.
    assert point["cost_per_step_usd"] == pytest.approx(2 * 55.04 / 3600 * point["step_time_s"])
    assert point["cost_per_million_samples_usd"] == pytest.approx(1e6 * point["cost_per_step_usd"] / (12 * 32))
    point, = result_of("run", QUICKSTART, "--set", "cluster.gpus=8", "-o", "-")["points"]
    assert point["cost_per_step_usd"] is None and point["cost_per_million_samples_usd"] is None
    assert refused("run", QUICKSTART, "--set", "platform.node.price_per_hour_usd=3").endswith(
        '/node: the key "price_source" is missing')


# -------------------------------------------------------------------------------------- errors


def test_a_wrong_key_names_its_place_and_the_near_ones(broken):
    path = broken(QUICKSTART, lambda d: d["training"].update(micro_bacth=32))
    assert refused("run", path).startswith(
        f'{path}:/training: unknown key "micro_bacth"; did you mean "micro_batch"? known: micro_batch, ')


def test_a_negative_bandwidth(broken):
    path = broken("platforms/dgx1v.json", lambda d: d["node"]["nics"].update(bandwidth_Bps=-1))
    platform = path.parent.parent / "platforms/dgx1v.json"
    assert refused("run", path) == f"{platform}:/node/nics/bandwidth_Bps: must be in [1, 100000000000000], got -1"


def test_a_fraction_of_a_gpu(broken):
    path = broken(QUICKSTART, lambda d: (d.pop("vary"), d["cluster"].update(gpus=3.7)))
    assert refused("run", path) == f"{path}:/cluster/gpus: must be a whole number in [1, 1048576], got 3.7"
    path = broken(QUICKSTART, lambda d: d["vary"].update({"cluster.gpus": [8, 3.7]}))
    assert refused("run", path) == f"{path}:/vary/cluster.gpus/1: must be a whole number in [1, 1048576], got 3.7"


def test_missing_files(broken, tmp_path):
    assert refused("run", "nowhere.json") == "nowhere.json: no such file"
    path = broken(QUICKSTART, lambda d: d.update(model="../models/nowhere.json"))
    assert refused("run", path) == f'{path}:/model: no such file: "{tmp_path}/models/nowhere.json"'
    assert refused("run", "scenarios") == "scenarios: is a directory, not a file"


def test_a_truncated_file(tmp_path):
    cut = tmp_path / "cut.json"
    cut.write_text((ROOT / QUICKSTART).read_text()[:300])
    assert refused("run", cut).startswith(f"{cut}: not valid JSON: parse error at line ")


def test_a_key_that_stands_twice(tmp_path):
    twice = tmp_path / "twice.json"
    twice.write_text('{"format": "stepcast.scenario/1", "training": {"sync": "ddp", "sync": "flat"}}')
    assert refused("run", twice) == f"{twice}:/training/sync: this key stands twice in the object"


def test_a_huge_file(tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(3 << 30)
    assert refused("run", huge) == f"{huge}: is 3 GiB; at most 256 MiB are read"


@pytest.mark.parametrize("option", ["-o", "--csv", "--trace"])
def test_an_output_that_cannot_be_written_is_found_before_the_run(option, tmp_path):
    # A step that could not be simulated shows that the output was tried first.
    hopeless = ("run", QUICKSTART, "--set", "cluster.gpus=8", "--set", "collective.algorithm=nvls")
    missing = tmp_path / "no" / "such" / "folder.json"
    assert refused(*hopeless, option, missing) == f"{option}: cannot write {missing}: No such file or directory"
    assert refused(*hopeless, option, tmp_path) == f"{option}: {tmp_path} is a directory, not a file"
    assert refused(*hopeless, option, QUICKSTART) == f"{option}: {QUICKSTART} is an input of this run"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_run_leaves_the_old_file(tmp_path):
    old = tmp_path / "old.json"
    old.write_text("old")
    refused("run", QUICKSTART, "--set", "cluster.gpus=8", "--set", "collective.algorithm=nvls", "-o", old)
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"] and old.read_text() == "old"


@pytest.mark.parametrize("arguments, line", [
    (("run", QUICKSTART, "--set", "cluster.gpus=8", "--set", "collective.algorithm=nvls"),
     "--set collective.algorithm: NCCL cannot do that here: needs switches with NVLink SHARP"),
    (("run", QUICKSTART, "--set", "cluster.gpus=16", "--set", "cluster.gpus_per_node=[8,4]"),
     "--set cluster.gpus_per_node: must add up to 16 GPUs, got 12"),
    (("collective", "--platform", "platforms/ideal.json", "--gpus", 4, "--bytes", "1MiB", "--set", "NCCL_ALGO=Tre"),
     '--set NCCL_ALGO: unknown "tre"; did you mean "tree", "nvlstree"? known: ring, tree, nvls, nvlstree'),
    (("collective", "--platform", "platforms/ideal.json", "--gpus", 4, "--bytes", "1MiB", "--set", "chunking=nccl"),
     "--set chunking: NCCL's chunks need a platform with gpu.compute_capability"),
    (("collective", "--platform", "platforms/ideal.json", "--gpus", 4, "--bytes", "1MiB", "--placement", "packd"),
     '--placement: unknown "packd"; did you mean "packed"? known: packed, scattered'),
    (("run", QUICKSTART, "--set", "cluster.gpus=2000"),
     "--set cluster.gpus: must be a whole number in [1, 1024] (128 nodes of 8 GPUs in "
     "platforms/dgx1v.json), got 2000"),
    (("run", QUICKSTART, "--set", "training.micro_batch=257"),
     "--set training.micro_batch: must be a whole number in [4, 256], not too far from what "
     "models/resnet50_v100_fp32.json was measured at (32), got 257"),
    (("run", QUICKSTART, "--set", "collective.algorithm=rnig"),
     '--set collective.algorithm: unknown "rnig"; did you mean "ring"? known: binary_tree, direct, direct_one_shot, '
     "double_binary_tree, hierarchical, nvls, nvls_tree, recursive_doubling, recursive_halving_doubling, ring"),
    (("run", QUICKSTART, "--set", "training.sync=dpp"),
     '--set training.sync: unknown "dpp"; did you mean "ddp"? known: ddp, flat, per_tensor, '
     "overlapped_per_tensor, merged, horovod"),
    (("run", QUICKSTART, "--set", "gpus"), "--set gpus: must be key=value, such as training.accumulation_steps=8"),
    (("run",), "stepcast run: name a scenario file, such as scenarios/quickstart.json"),
    (("run", QUICKSTART, "--engine", "simgird"),
     '--engine: unknown "simgird"; did you mean "simgrid"? known: auto, simgrid, analytic'),
    (("runn",), 'runn: unknown command; did you mean "run"? known: run, merge, collective, compare, fit, import, trace, validate, plot, report, list'),
    (("collective", "--platform", IDEAL, "--gpus", "8"), "--bytes: must be given"),
    (("collective", "--platform", IDEAL, "--gpus", "8", "--bytes", "1Mi"),
     "--bytes: must be a size such as 64KiB, 25MiB or 1000000, got 1Mi"),
    (("collective", "--platform", IDEAL, "--gpus", "1", "--bytes", "1MiB"),
     "--gpus: must be a whole number in [2, 1048576], got 1"),
    (("collective", "--platform", IDEAL, "--gpus", "8", "--bytes", "8GiB", "--chunk-bytes", "1",
      "--no-fold"),
     "--chunk-bytes: 1 cuts 8 GiB into 1.2e+11 transfers; at most 1e+08 are simulated"),
    (("list", "algoritms"), 'stepcast list: unknown "algoritms"; did you mean "algorithms"? known: algorithms, topologies, importers, calibrations, models'),
])
def test_mistakes_on_the_command_line(arguments, line):
    assert refused(*arguments) == line


def test_contention_that_the_analytic_engine_cannot_answer_is_a_failure(tmp_path):
    # Four rings through nodes of four GPUs start at different GPUs and meet on the switch ports.
    platform = tmp_path / "switched.json"
    link = {"bandwidth_Bps": 1e11, "alpha_s": 1e-6}
    platform.write_text(json.dumps({
        "format": "stepcast.platform/1", "name": "switched", "source": "test", "gpu": {"name": "g"},
        "node": {"gpus": 4, "interconnect": {"kind": "switch", **link},
                 "nics": {"count": 4, "bandwidth_Bps": 1e10, "alpha_s": 5e-6,
                          "near_gpus": [[0], [1], [2], [3]]}},
        "fabric": {"kind": "switch"}, "nodes": 8}))
    question = ("collective", "--platform", platform, "--gpus", 12, "--bytes", "1MB", "--engine")
    line = refused(*question, "analytic", code=1)
    assert line.startswith("the analytic engine cannot answer: ")
    assert line.endswith(" at changing rates; use --engine simgrid")
    assert stepcast(*question, "simgrid").returncode == 0


@pytest.mark.parametrize("to_all", [False, True])
def test_an_interrupt_leaves_nothing_behind(tmp_path, to_all):
    # Takes minutes if nobody stops it.
    run = subprocess.Popen(
        [STEPCAST, "collective", "--platform", IDEAL, "--gpus", "512", "--bytes", "64MiB", "--chunk-bytes", "32KiB",
         "--engine", "simgrid", "--no-fold",
         "--json", tmp_path / "never.json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background jobs ignore it
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    deadline = time.monotonic() + 20
    while not (child := children.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert child
    time.sleep(1.5)  # well into the simulation
    if to_all:  # as a terminal does
        os.killpg(run.pid, signal.SIGINT)
    else:
        run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=20) == (b"", b"")
    assert run.returncode == -signal.SIGINT
    while Path(f"/proc/{child[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{child[0]}").exists() or "Z" in Path(f"/proc/{child[0]}/stat").read_text().split()[2]
    assert list(tmp_path.iterdir()) == []


def test_a_killed_simulation_is_reported():
    # 1024 ranks need more than 200 MB of address space.
    done = subprocess.run(
        [STEPCAST, "collective", "--platform", IDEAL, "--gpus", "1024", "--bytes", "1GiB", "--chunk-bytes", "64KiB",
         "--engine", "simgrid", "--no-fold"],
        cwd=ROOT, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)))
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == "" and done.stderr.count("\n") == 1


def test_a_faster_network_exchanges_more_between_two_nodes():
    """On two nodes what they exchange is the limit: 1 - 1/1.1 of nearly all of the exposed two thirds of the step."""
    done = stepcast("run", "scenarios/when_to_stop.json", "--set", "cluster.gpus=8", "--answer")
    [line] = [line for line in done.stdout.splitlines() if "10 % faster network" in line]
    assert -9.0 < float(line.split()[-2]) < -4.0, line
