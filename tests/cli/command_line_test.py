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
    (("run", QUICKSTART, "--set", "training.micro_batch=64"),
     "--set training.micro_batch: must be a micro-batch that models/resnet50_v100_fp32.json was measured "
     "at; known: 32"),
    (("run", QUICKSTART, "--set", "collective.algorithm=rnig"),
     '--set collective.algorithm: unknown "rnig"; did you mean "ring"? known: binary_tree, direct, direct_one_shot, '
     "double_binary_tree, hierarchical, nvls, nvls_tree, recursive_doubling, recursive_halving_doubling, ring"),
    (("run", QUICKSTART, "--set", "training.sync=dpp"),
     '--set training.sync: unknown "dpp"; did you mean "ddp"? known: ddp, flat, per_tensor'),
    (("run", QUICKSTART, "--set", "gpus"), "--set gpus: must be key=value, such as training.accumulation_steps=8"),
    (("run",), "stepcast run: name a scenario file, such as scenarios/quickstart.json"),
    (("run", QUICKSTART, "--engine", "simgird"),
     '--engine: unknown "simgird"; did you mean "simgrid"? known: auto, simgrid, analytic'),
    (("runn",), 'runn: unknown command; did you mean "run"? known: run, collective, fit, validate, plot, report, list'),
    (("collective", "--platform", IDEAL, "--gpus", "8"), "--bytes: must be given"),
    (("collective", "--platform", IDEAL, "--gpus", "8", "--bytes", "1Mi"),
     "--bytes: must be a size such as 64KiB, 25MiB or 1000000, got 1Mi"),
    (("collective", "--platform", IDEAL, "--gpus", "1", "--bytes", "1MiB"),
     "--gpus: must be a whole number in [2, 1048576], got 1"),
    (("collective", "--platform", IDEAL, "--gpus", "8", "--bytes", "8GiB", "--chunk-bytes", "1"),
     "--chunk-bytes: 1 cuts 8 GiB into 1.2e+11 transfers; at most 1e+08 are simulated"),
    (("list", "algoritms"), 'stepcast list: unknown "algoritms"; did you mean "algorithms"? known: algorithms, topologies, calibrations'),
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
        [STEPCAST, "collective", "--platform", IDEAL, "--gpus", "1024", "--bytes", "1GiB", "--chunk-bytes", "64KiB"],
        cwd=ROOT, capture_output=True, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20)))
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == "" and done.stderr.count("\n") == 1
