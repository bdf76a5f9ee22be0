"""stepcast validate: what is fitted, what is printed, and what the exit code says."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))


def schema(name):
    return jsonschema.Draft202012Validator(
        json.loads((ROOT / f"docs/schemas/{name}.schema.json").read_text(encoding="utf-8")))


def validate(folder, *words):
    return subprocess.run([STEPCAST, "validate", *words], cwd=folder, capture_output=True, text=True, timeout=300)


# One parameter of 1 MB, a backward of 10 ms, and nothing to hide the AllReduce behind.
BYTES = 1_000_000
COMPUTE_S = 0.010
TRACE = {
    "format": "stepcast.trace/1", "name": "one tensor", "source": "tests/cli/validate_test.py", "gpu": "ideal",
    "precision": "fp32", "parameters": [{"name": "w", "elements": BYTES // 4, "dtype": "float32"}],
    "optimizer": {"name": "SGD", "state_bytes_per_element": 0},
    "measured": [{"micro_batch": 1, "steps": 1, "step_time_s": {"median": COMPUTE_S, "min": COMPUTE_S, "max": COMPUTE_S},
                  "forward": [], "backward": [{"name": "b", "duration_s": COMPUTE_S, "gradients": ["w"]}],
                  "optimizer": []}],
}
ALPHA_S = 2e-6  # of platforms/ideal.json


def step_time(gpus, bandwidth):
    """A ring: 2 (n - 1) steps of alpha + S / n / B behind backward."""
    return COMPUTE_S + 2 * (gpus - 1) * (ALPHA_S + BYTES / gpus / bandwidth)


def document(bandwidth=1e9, test_factor=1.0, **others):
    cases = [
        {"id": f"{gpus} GPUs", "scenario": "one", "split": "test" if gpus > 4 else "fit", "set": {"cluster.gpus": gpus},
         "measured": {"step_time_s": step_time(gpus, bandwidth) * (test_factor if gpus > 4 else 1.0),
                      "noise_relative": None}}
        for gpus in (2, 3, 4, 8, 16)
    ]
    return {
        "format": "stepcast.validation/1", "suite": "made up", "name": "A ring", "source": "derived",
        "machine": "ideal",
        "scenarios": {"one": {
            "format": "stepcast.scenario/1", "question": "How long?", "model": "trace.json",
            "platform": str(ROOT / "platforms/ideal.json"), "cluster": {"gpus": 2},
            "training": {"sync": "flat", "broadcast_buffers": False},
            "collective": {"algorithm": "ring", "chunking": "plain"},
            "interference": {"computation_factor": 1.0, "communication_factor": 1.0},
        }},
        "fit": [{"key": "platform.node.nics.bandwidth_Bps", "start": 4e8, "low": 1e8, "high": 1e10}],
        "bars": {"mean_abs_error": 0.01},
        "orders": [["16 GPUs", "8 GPUs"]],
        "cases": cases,
        **others,
    }


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "trace.json").write_text(json.dumps(TRACE))
    return tmp_path


def result_of(folder, whole, code=0):
    (folder / "v.json").write_text(json.dumps(whole))
    schema("validation").validate(whole)
    done = validate(folder, "v.json", "--json", "out.json", "--html", "out.html")
    assert done.returncode == code, done
    result = json.loads((folder / "out.json").read_text())
    schema("validate").validate(result)
    (suite,) = result["suites"]
    assert ("<svg" in (folder / "out.html").read_text()) == (suite["skipped"] is None)
    return suite, done.stdout


def test_a_rate_is_found_again_and_predicts(folder):
    suite, text = result_of(folder, document())
    figure = suite["fitted"]["platform.node.nics.bandwidth_Bps"]
    assert figure["value"] == pytest.approx(1e9, rel=2e-3) and not figure["held"]
    for case in suite["cases"]:
        assert case["error"] == pytest.approx(case["predicted"] / case["measured"] - 1)
        assert abs(case["error"]) < 2e-3
    test, fit = suite["summary"]["test"], suite["summary"]["fit"]
    assert (test["cases"], fit["cases"]) == (2, 3)
    sizes = [abs(case["error"]) for case in suite["cases"] if case["split"] == "test"]
    assert test["mean_abs_error"] == pytest.approx(sum(sizes) / 2)
    assert test["max_abs_error"] == max(sizes)
    assert (suite["summary"]["orders"], suite["summary"]["orders_right"]) == (1, 1)
    assert "bar met: mean 1.0 %" in text


def test_measured_times_of_test_cases_change_no_prediction(folder):
    one, _ = result_of(folder, document())
    other, text = result_of(folder, document(test_factor=2.0), code=4)
    assert [case["predicted"] for case in one["cases"]] == [case["predicted"] for case in other["cases"]]
    assert one["fitted"] == other["fitted"]
    assert other["summary"]["test"]["bias"] == pytest.approx(-0.5, abs=2e-3)
    assert other["missed"] == ["mean error 50.0 %, at most 1.0 % wanted"]
    assert "bar missed: mean error 50.0 %" in text


def test_measured_times_of_fitted_cases_do(folder):
    one, _ = result_of(folder, document())
    whole = document(bandwidth=2e9)
    other, _ = result_of(folder, whole)
    assert other["cases"][-1]["predicted"] < one["cases"][-1]["predicted"]


def test_a_figure_of_one_scenario_is_fitted_to_its_cases_alone(folder):
    """Two scenarios on networks of 1 and of 2 GB/s, each with its own figure."""
    slow, fast = document(bandwidth=1e9), document(bandwidth=2e9)
    key = slow["fit"][0]
    whole = document(
        scenarios={"slow": slow["scenarios"]["one"], "fast": fast["scenarios"]["one"]},
        cases=[case | {"scenario": name, "id": f"{name} {case['id']}"}
               for name, one in (("slow", slow), ("fast", fast)) for case in one["cases"]],
        fit=[key | {"scenario": "slow"}, key | {"scenario": "fast"}], orders=[],
    )  # fmt: skip
    suite, _ = result_of(folder, whole)
    for name, bandwidth in (("slow", 1e9), ("fast", 2e9)):
        figure = suite["fitted"][f"platform.node.nics.bandwidth_Bps of {name}"]
        assert figure["value"] == pytest.approx(bandwidth, rel=2e-3)
    whole["fit"][0]["scenario"] = "slwo"
    (folder / "v.json").write_text(json.dumps(whole))
    assert validate(folder, "v.json").stderr.startswith(
        'stepcast: v.json:/fit/0/scenario: unknown "slwo"; did you mean "slow"?')


@pytest.mark.parametrize(("change", "line"), [
    ({"cases": []}, "v.json:/cases: must list at least one case"),
    ({"fit": [{"key": "k", "start": 3, "low": 1, "high": 2}]}, "v.json:/fit/0/start: must be in [1, 2], got 3"),
    ({"orders": [["8 GPUs", "9 GPUs"]]}, 'v.json:/orders/0/1: no case has the id "9 GPUs"'),
    ({"suites": 1}, 'v.json: unknown key "suites"'),
])
def test_mistakes_in_the_file(folder, change, line):
    (folder / "v.json").write_text(json.dumps(document(**change)))
    done = validate(folder, "v.json")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"stepcast: {line}"), done.stderr


def test_mistakes_in_a_scenario_or_a_case_name_their_place(folder):
    whole = document()
    whole["scenarios"]["one"]["vary"] = {"cluster.gpus": [1]}
    (folder / "v.json").write_text(json.dumps(whole))
    assert validate(folder, "v.json").stderr.startswith("stepcast: v.json:/scenarios/one/vary: ")
    whole = document()
    whole["scenarios"]["one"]["clutser"] = {}
    (folder / "v.json").write_text(json.dumps(whole))
    assert validate(folder, "v.json").stderr.startswith("stepcast: v.json:/scenarios/one: unknown key ")
    whole = document()
    whole["cases"][1]["set"]["cluster.gpus"] = "many"
    (folder / "v.json").write_text(json.dumps(whole))
    assert validate(folder, "v.json").stderr.startswith("stepcast: v.json:/cases/1/set/cluster.gpus: ")


def test_unknown_suite(folder):
    done = validate(folder, "dpp")  # not in the source tree, but stepcast knows where that is
    assert done.returncode == 2
    assert done.stderr == ('stepcast: stepcast validate: unknown "dpp"; did you mean "ddp"? known: accumulation, '
                           "collectives, ddp, hkbu, pollux, schedules, traces\n")


def test_no_suites_anywhere(folder):
    done = subprocess.run([STEPCAST, "validate"], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "STEPCAST_HOME": str(folder)})
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (f"stepcast: stepcast validate: there is no tests/validation/*.json here or in {folder}: "
                           "go to the source tree of stepcast or set STEPCAST_HOME to it\n")


def test_files_of_a_suite_together(folder):
    (folder / "a.json").write_text(json.dumps(document()))
    (folder / "b.json").write_text(json.dumps(document(test_factor=1.25, bars={})))
    (folder / "c.json").write_text(json.dumps(document(suite="other", peers={"text": "Somebody", "mean_error": 0.5})))
    done = validate(folder, "a.json", "b.json", "c.json", "--json", "out.json", "--html", "out.html")
    assert done.returncode == 0, done
    result = json.loads((folder / "out.json").read_text())
    schema("validate").validate(result)
    pooled = {each["name"]: each for each in result["pooled"]}
    assert list(pooled) == ["made up", "other", None]
    # Errors of 0 and -20 %, two of each. The cases of c.json stand in a.json.
    for name, files in (("made up", 2), (None, 3)):
        test = pooled[name]["test"]
        assert (pooled[name]["files"], test["cases"]) == (files, 4)
        assert test["mean_abs_error"] == pytest.approx(0.1, abs=2e-3)
        assert test["bias"] == pytest.approx(-0.1, abs=2e-3)
    assert "50.0 %  other: A ring (Somebody)" in done.stdout.splitlines()[-1]
    assert "Beside the best peers" in (folder / "out.html").read_text()


# What is left out of the collectives of a machine, and the title of the predictions from the rest.
LEFT_OUT = [
    ("abci_v100", "more than 4 nodes, from up to 4", lambda sample: sample["nodes"] > 4),
    ("abci_v100", "each number of nodes, from the others", lambda sample: sample["nodes"] == 2),
    ("l40s_4gpu", "each number of GPUs in a node, from the others", lambda sample: sample["ranks"] == 4),
    ("l40s_4gpu", "each algorithm and protocol that was forced, from the others",
     lambda sample: sample.get("protocol") == "LL"),
    ("mi355x_8gpu", "each algorithm and protocol that was forced, from the others",
     lambda sample: (sample.get("algorithm"), sample.get("protocol")) == ("ring", "LL")),
]


def curve_of(sample):
    names = [sample[key] for key in ("algorithm", "protocol") if sample.get(key)]
    return ", ".join([f"{sample['operation']}, {sample['ranks']} ranks on {sample['nodes']}", *names])


def collectives_of(folder, calibration):
    (folder / "m.calibration.json").write_text(json.dumps(calibration))
    done = validate(folder, "collectives", "m.calibration.json", "--json", "out.json")
    assert done.returncode in (0, 4), done
    result = json.loads((folder / "out.json").read_text())
    schema("validate").validate(result)
    return {suite["title"]: {case["id"]: case for case in suite["cases"]} for suite in result["suites"]}


@pytest.mark.parametrize("name", sorted({name for name, _, _ in LEFT_OUT}))
def test_collectives_that_are_left_out_reach_no_fit(folder, name):
    calibration = json.loads((ROOT / f"platforms/{name}.calibration.json").read_text())
    before = collectives_of(folder, calibration)
    for machine, title, is_left_out in LEFT_OUT:
        if machine != name:
            continue
        changed = json.loads(json.dumps(calibration))
        curves = set()
        for sample in changed["samples"]:
            if is_left_out(sample):
                sample["time_s"] *= 3
                curves.add(f"m: {curve_of(sample)}, ")
        whole = collectives_of(folder, changed)
        after = whole[title]
        left_out = [key for key in after if any(key.startswith(curve) for curve in curves)]
        assert len(left_out) >= 8, sorted(after)
        for key in left_out:
            assert after[key]["predicted"] == before[title][key]["predicted"], key
            assert after[key]["measured"] == pytest.approx(3 * before[title][key]["measured"]), key
        # They do reach the predictions of what they are not left out of.
        assert any(case["predicted"] != before[what][key]["predicted"]
                   for what, cases in whole.items() for key, case in cases.items())


def test_sizes_that_are_left_out_reach_no_curve(folder):
    calibration = json.loads((ROOT / "platforms/rtx4090_8gpu_stock.calibration.json").read_text())
    title = "every second size, from the others"
    before = collectives_of(folder, calibration)[title]
    sizes = sorted({sample["bytes"] for sample in calibration["samples"]})
    for sample in calibration["samples"]:
        if sample["bytes"] in sizes[1:-1:2]:
            sample["time_s"] *= 3
    after = collectives_of(folder, calibration)[title]
    assert len(after) == 12
    for key, case in after.items():
        assert case["predicted"] == before[key]["predicted"]
        assert case["measured"] == pytest.approx(3 * before[key]["measured"])


def shipped():
    return sorted(path for path in (ROOT / "tests/validation").glob("*.json")
                  if json.loads(path.read_text()).get("format") == "stepcast.validation/1")


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.name)
def test_shipped_suite_is_valid(path):
    whole = json.loads(path.read_text())
    schema("validation").validate(whole)
    for scenario in whole["scenarios"].values():
        schema("scenario").validate(scenario)
        for key in ("model", "platform", "calibration"):
            named = scenario.get(key)
            assert named is None or named in whole.get("imports", {}) or (path.parent / named).is_file()


def test_the_table_of_peers_stands_beside_them(folder):
    path = ROOT / "tests/validation/peers_8h100.calibration.json"
    schema("calibration").validate(json.loads(path.read_text()))
    done = validate(folder, "collectives", str(path), "--json", "out.json")
    assert done.returncode == 0, done
    (suite,) = json.loads((folder / "out.json").read_text())["suites"]
    assert suite["peers"]["mean_error"] == 0.132 and suite["summary"]["test"]["cases"] == 6
    # Affine between the neighbours, the first left out: 2 MiB between 1 and 4 MiB.
    assert suite["cases"][0]["predicted"] == pytest.approx(42.0e-6 + (57.0e-6 - 42.0e-6) / 3)


def test_a_suite_without_its_traces_is_skipped_with_the_reason(folder):
    whole = document(imports={"absent": {"importer": "kineto", "files": ["absent.json.gz"]}})
    suite, text = result_of(folder, whole)
    assert suite["skipped"] == "no such file: absent.json.gz" and suite["cases"] == []
    assert "skipped: no such file: absent.json.gz" in text
    # A list of tensors that an import takes is one of its files.
    (folder / "layers.csv").write_text("name,parameters,forward_s,backward_s\nw,250000,0,0.010\n")
    whole = document(imports={"listed": {"importer": "kineto", "files": ["layers.csv"],
                                         "set": {"parameters": "tensors.json#resnet18"}}})
    suite, _ = result_of(folder, whole)
    assert suite["skipped"] == "no such file: tensors.json"


def test_a_model_is_imported(folder):
    (folder / "layers.csv").write_text("name,parameters,forward_s,backward_s\nw,250000,0,0.010\n")
    whole = document(imports={"table": {"importer": "layers", "files": ["layers.csv"], "set": {"micro_batch": "1"}}})
    whole["scenarios"]["one"]["model"] = "table"
    suite, _ = result_of(folder, whole)
    assert suite["fitted"]["platform.node.nics.bandwidth_Bps"]["value"] == pytest.approx(1e9, rel=0.01)
