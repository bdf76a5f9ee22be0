"""Every figure from a small result: units on its axes, something in it, numbers of the result; and
what is said of the figures that it has no data for."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
QUICKSTART = "scenarios/quickstart.json"
CASE = "tests/validation/pytorch_ddp_resnet50.json"
CALIBRATION = "platforms/abci_v100.calibration.json"
FIGURES = ["step_split", "efficiency", "throughput", "chunk_size", "accumulation", "algorithms", "heat_map",
           "predicted_measured", "time_line"]

sys.path.insert(0, str(ROOT / "plots"))
inputs = importlib.import_module("inputs")
style = importlib.import_module("style")


def stepcast(*arguments, **options):
    return subprocess.run([STEPCAST, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, **options)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


def run(folder, name, *sets):
    options = [word for each in sets for word in ("--set", each)]
    done = stepcast("run", QUICKSTART, "--engine", "analytic", "-o", folder / name, *options)
    assert done.returncode == 0, done.stderr
    return folder / name


@pytest.fixture(scope="session")
def grid(folder):
    """Two keys vary: GPUs and accumulation steps."""
    return run(folder, "grid.json", "vary.cluster.gpus=[1,2,8,16]", "vary.training.accumulation_steps=[1,2]")


@pytest.fixture(scope="session")
def caps(folder):
    return run(folder, "caps.json", "cluster.gpus=16", "vary.training.bucket_cap_bytes=[1048576,26214400]")


@pytest.fixture(scope="session")
def tables(folder):
    paths = []
    for algorithm in ("ring", "double_binary_tree"):
        paths.append(folder / f"{algorithm}.json")
        done = stepcast("collective", "--platform", "platforms/abci_v100.json", "--calibration", CALIBRATION, "--gpus",
                        "8", "--bytes", "64KiB,1MiB,16MiB", "--algorithm", algorithm, "--json", paths[-1])
        assert done.returncode == 0, done.stderr
    return paths


def draw(name, *paths):
    style.set_up()
    return importlib.import_module(name).draw(inputs.read([Path(path) for path in paths]))


def texts(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def is_number(text):
    return text.replace(".", "").replace(",", "").replace("−", "").replace("-", "").isdigit()


def check(figure, title):
    """What holds of every figure: units on each axis, something drawn, the question, where it is from."""
    assert figure.get_suptitle().replace("\n", " ") == title
    assert "stepcast " in figure.get_supxlabel() and "basis: " in figure.get_supxlabel()
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.lines or axes.patches or axes.images or axes.collections, "an empty figure"
        for axis, name in ((axes.xaxis, axes.get_xlabel()), (axes.yaxis, axes.get_ylabel())):
            numbers = [text for text in texts(axis) if text and is_number(text)]
            grouper = axes.get_shared_x_axes() if axis is axes.xaxis else axes.get_shared_y_axes()
            # Of axes that share one, the outer one has its name.
            if numbers and len(grouper.get_siblings(axes)) == 1:
                assert "[" in name or name.startswith("GPUs"), (name, numbers)
    style.plt.close(figure)


def question_of(path):
    return json.loads(Path(path).read_text())["scenario"]["question"]


@pytest.mark.parametrize("name", ["step_split", "efficiency", "throughput", "accumulation", "algorithms", "heat_map",
                                  "time_line"])
def test_figures_of_a_result(name, grid):
    check(draw(name, grid), question_of(grid))


def test_chunk_size(caps):
    figure = draw("chunk_size", caps)
    points = json.loads(caps.read_text())["points"]
    steps = figure.axes[0].lines[0].get_ydata()
    assert list(steps) == [pytest.approx(point["step_time_s"] * 1e3) for point in points]
    assert texts(figure.axes[1].xaxis) == ["1 MiB", "25 MiB"]
    check(figure, question_of(caps))


def test_bars_are_the_split(grid):
    figure = draw("step_split", grid)
    points = sorted(json.loads(grid.read_text())["points"], key=lambda point: point["world_size"])
    stacks = [sum(part[i].get_height() for part in figure.axes[0].containers[:5]) for i in range(len(points))]
    assert stacks == [pytest.approx(point["step_time_s"] * 1e3, rel=1e-9) for point in points]
    style.plt.close(figure)


def test_algorithms_have_measured_points(tables):
    figure = draw("algorithms", *tables, ROOT / CALIBRATION)
    names = [text.get_text().replace("\n", " ") for text in figure.legends[0].get_texts()]
    assert names[:2] == ["ring, 8 ranks", "double_binary_tree, 8 ranks"]
    assert names[-1] == "measured on ABCI V100, 8 ranks on 2 nodes"
    # One point by hand: busbw = S / t * 2 (n - 1) / n.
    sample = next(each for each in json.loads((ROOT / CALIBRATION).read_text())["samples"]
                  if each["ranks"] == 8 and each["bytes"] == 1 << 20)
    measured = next(line for line in figure.axes[0].lines if line.get_color() == "black")
    rates = dict(zip(measured.get_xdata(), measured.get_ydata()))
    assert rates[1 << 20] == pytest.approx((1 << 20) / sample["time_s"] * 2 * 7 / 8 / 1e9)
    check(figure, "all_reduce on ABCI V100")


def test_predicted_and_measured(grid):
    figure = draw("predicted_measured", grid, ROOT / CASE)
    pairs = inputs.measured_pairs(inputs.read([grid, ROOT / CASE]))
    assert [name for name, _, _ in pairs] == ["1 GPU", "2 GPUs", "8 GPUs", "16 GPUs"]
    assert [bar.get_width() for bar in figure.axes[1].containers[0]] == [
        pytest.approx((point["step_time_s"] / row["step_time_s"] - 1) * 100) for _, row, point in pairs]
    assert "PyTorch's own DDP benchmark" in figure.get_supxlabel()
    check(figure, question_of(grid))


def test_validated_suites(tmp_path):
    def case(name, split, predicted):
        return {"id": name, "split": split, "predicted": predicted, "low": predicted * 0.9, "high": predicted * 1.2,
                "measured": 1.0, "error": predicted - 1.0, "basis": "interpolated"}

    suite = {"name": "made up", "source": "nowhere", "cases": [case("a", "fit", 1.02), case("b", "test", 1.25)]}
    path = tmp_path / "validate.json"
    path.write_text(json.dumps({"format": "stepcast.validate/1", "versions": {"stepcast": "0", "revision": "x"},
                                "suites": [suite]}))
    figure = draw("predicted_measured", path)
    errors = [list(each.lines[0].get_xdata()) for each in figure.axes[1].containers]
    assert errors == [[pytest.approx(2.0)], [pytest.approx(25.0)]]  # hollow, then filled
    assert texts(figure.axes[1].yaxis) == ["made up\n2 cases"]
    assert "nowhere" in figure.get_supxlabel()
    check(figure, "Predicted against measured step times")


def test_knee_is_the_highest_above_the_chord():
    efficiency = importlib.import_module("efficiency")

    def curve(*efficiencies):
        return [{"world_size": 2**i, "scaling_efficiency": value} for i, value in enumerate(efficiencies)]

    # Chord from 1.0 to 0.4: 0.85, 0.7, 0.55 between them; the heights are 0.1, 0.2 and 0.05.
    assert efficiency.knee_of(curve(1.0, 0.95, 0.9, 0.6, 0.4))["world_size"] == 4
    assert efficiency.knee_of(curve(1.0, 0.9, 0.8, 0.7)) is None  # a straight line
    assert efficiency.knee_of(curve(1.0, 0.6, 0.4)) is None  # it bends the other way
    assert efficiency.knee_of(curve(1.0, 0.5)) is None


@pytest.mark.parametrize("sync", ["ddp", "per_tensor", "flat"])
def test_time_line_is_blocked_as_long_as_the_split_says(folder, sync):
    blocked = importlib.import_module("blocked")
    path = run(folder, f"{sync}.json", f"training.sync={sync}", "vary.cluster.gpus=[16]")
    point = json.loads(path.read_text())["points"][0]
    split_s = point["split"]["exposed_comm_s"] + point["split"]["wait_s"]
    assert blocked.length(blocked.blocked_spans(point)) == pytest.approx(split_s, abs=0.01 * point["step_time_s"])


def test_too_many_lines_are_thinned_out():
    points = [{"settings": {"cluster.gpus": gpus, "training.micro_batch": batch}} for batch in range(1, 31)
              for gpus in (1, 2)]
    series, note = style.series_over(points, {"cluster.gpus"})
    assert list(series) == [f"micro batch {i}" for i in (1, 6, 11, 15, 20, 25, 30)]  # 1 + 29 i / 6, rounded
    assert note == "7 of 30 lines drawn"


def test_front_door(grid, tmp_path):
    done = stepcast("plot", grid, "-o", tmp_path / "new/figures")
    assert done.returncode == 0, done.stderr
    drawn = [name for name in FIGURES if name not in ("chunk_size", "predicted_measured")]
    assert done.stdout.split() == [str(tmp_path / f"new/figures/{name}{suffix}") for name in drawn
                                   for suffix in (".png", ".svg")]
    assert done.stderr.splitlines() == [
        "skipped chunk_size: needs two values of collective.chunk_bytes or training.bucket_cap_bytes",
        "skipped predicted_measured: needs measured step times: name a case such as tests/validation/*.json",
    ]
    for name in done.stdout.split():
        content = Path(name).read_bytes()
        assert content.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml") and len(content) > 5000
    assert sorted(path.name for path in (tmp_path / "new/figures").iterdir()) == sorted(
        name + suffix for name in drawn for suffix in (".png", ".svg"))


def test_one_script_alone(caps, tmp_path):
    script = [sys.executable, ROOT / "plots/chunk_size.py", caps, "-o"]
    pictures = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for picture in pictures:
        subprocess.run([*script, picture], check=True)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()  # the same result, the same file
    done = subprocess.run([sys.executable, ROOT / "plots/accumulation.py", caps, "-o", pictures[0]], capture_output=True,
                          text=True)
    assert (done.returncode, done.stderr) == (
        2, "stepcast: nothing to draw: needs two values of training.accumulation_steps\n")


@pytest.mark.parametrize("name, content, problem", [
    ("none.json", None, "No such file or directory"),
    ("broken.json", "{", "is not JSON: "),
    ("other.json", '{"format": "stepcast.scenario/1"}', '"format" must be "stepcast.result/1", '),
    ("empty.json", '{"format": "stepcast.result/1", "points": []}', "lacks 'scenario' in /"),
])
def test_what_cannot_be_drawn(tmp_path, name, content, problem):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    done = stepcast("plot", path, "-o", tmp_path / "figures")
    assert done.returncode == 2
    assert done.stderr.startswith(f"stepcast: {path}: {problem}") and done.stderr.count("\n") == 1
    assert not (tmp_path / "figures").exists()


def test_a_point_that_lacks_something(grid, tmp_path):
    result = json.loads(grid.read_text())
    del result["points"][3]["split"]["wait_s"]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    done = stepcast("plot", path, "-o", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"stepcast: {path}: lacks 'wait_s' in /points/3/split\n")


def test_points_that_failed_are_left_out(grid, tmp_path, capsys):
    result = json.loads(grid.read_text())
    result["points"][1] = {"settings": result["points"][1]["settings"], "error": "out of memory"}
    (tmp_path / "some.json").write_text(json.dumps(result))
    assert len(inputs.read([tmp_path / "some.json"]).points) == len(result["points"]) - 1
    assert capsys.readouterr().err == f"left out 1 of {len(result['points'])} points, which failed\n"
    result["points"] = [result["points"][1]]
    (tmp_path / "none.json").write_text(json.dumps(result))
    with pytest.raises(inputs.NotAResult, match="all failed, such as: out of memory"):
        inputs.read([tmp_path / "none.json"])


def test_what_the_machine_lacks(grid, tmp_path):
    done = stepcast("plot", grid, "-o", tmp_path, env={"STEPCAST_HOME": str(tmp_path)})
    assert (done.returncode, done.stderr) == (
        3, f"stepcast: there is no {tmp_path}/plots/make_all.py: set STEPCAST_HOME to the source tree of stepcast\n")
    (tmp_path / "plots").symlink_to(ROOT / "plots")
    done = stepcast("plot", grid, "-o", tmp_path, env={"STEPCAST_HOME": str(tmp_path), "PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (
        3, "stepcast: cannot start python3: No such file or directory; ./dev setup installs it\n")
    # -S: without what is installed beside Python itself.
    done = subprocess.run([sys.executable, "-S", ROOT / "plots/make_all.py", grid, "-o", tmp_path], capture_output=True,
                          text=True)
    assert (done.returncode, done.stderr) == (3, "stepcast: Python has no matplotlib here: ./dev setup installs it\n")
