"""The report page: complete in itself, its numbers those of the result, and what it does in a browser."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
QUICKSTART = "scenarios/quickstart.json"
CASE = "tests/validation/pytorch_ddp_resnet50.json"

sys.path[:0] = [str(ROOT / "plots"), str(ROOT / "tests")]
from browser import Page, find_browser  # noqa: E402
import inputs  # noqa: E402
import report  # noqa: E402

pytestmark = pytest.mark.skipif(not any(Path(path).exists() for path in report.CHART_JS),
                                reason="there is no Chart.js here: Debian's libjs-chart.js")
in_browser = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here, such as Debian's "
                                "chromium-headless-shell")


def stepcast(*arguments, **options):
    return subprocess.run([STEPCAST, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    done = stepcast("run", QUICKSTART, "--engine", "analytic", "-o", folder / "result.json", "--set",
                    "vary.cluster.gpus=[1,2,8,16]", "--set", "vary.training.accumulation_steps=[1,4]")
    assert done.returncode == 0, done.stderr
    done = stepcast("report", folder / "result.json", CASE, "-o", folder / "page.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


@pytest.fixture(scope="module")
def points(folder):
    return json.loads((folder / "result.json").read_text())["points"]


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_its_data_is_the_result(folder, points):
    data = data_of((folder / "page.html").read_text())
    assert len(data["rows"]) == len(points) == 8
    for row, point in zip(data["rows"], points):
        for column, value in zip(data["columns"], row, strict=True):
            kind, _, key = column["key"].partition("settings.")
            assert value == (point["settings"][key] if not kind else report.at(point, column["key"])), column
    buckets = data["timeLines"][-1]["buckets"]
    assert [bucket[4:7] for bucket in buckets] == [[b["ready_s"], b["start_s"], b["end_s"]] for b in points[-1]["buckets"]]


def test_it_needs_nothing_else(folder):
    page = (folder / "page.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""<(?:link|img|iframe|script)[^>]*\s(?:src|href)=""", page)
    assert "@@" not in page.split('<script type="application/json"')[0]


def test_what_it_says(folder, points):
    page = (folder / "page.html").read_text()
    best = next(p for p in points if (p["world_size"], p["accumulation_steps"]) == (16, 4))
    worst = next(p for p in points if (p["world_size"], p["accumulation_steps"]) == (16, 1))
    gain = best["throughput_samples_per_s"] / worst["throughput_samples_per_s"] - 1
    assert (f"On 16 GPUs most samples/s come with accumulation steps 4: {best['step_time_s'] * 1e3:.1f} ms a step, "
            in page)
    assert f"That is {gain * 100:.1f}\u00a0% more than with accumulation steps 1." in page
    assert "The calibration was measured on ABCI V100, not on DGX-1V: communication is extrapolated." in page
    assert "PyTorch&#x27;s own DDP benchmark" in page  # what was measured
    assert page.count("<td>calibration, ") == 3  # residuals of LL, LL128 and Simple


def test_answers():
    def point(gpus, efficiency, **settings):
        return {"settings": {"cluster.gpus": gpus, **settings}, "world_size": gpus, "step_time_s": 0.1 / efficiency,
                "throughput_samples_per_s": 320 * gpus * efficiency, "comm_fraction": 1 - efficiency,
                "scaling_efficiency": efficiency}

    assert report.answer([point(1, 1.0), point(2, 0.8), point(4, 0.5)]) == (
        "On 4 GPUs: 200.0 ms a step, 640 samples/s, 50.0\u00a0% of the step exposed communication, scaling efficiency "
        "50.0\u00a0%. Efficiency is 75 % or more up to 2 GPUs.")
    assert report.answer([point(2, 0.9), point(4, 0.8)]).endswith(
        "Efficiency stays above 75 % on every number of GPUs up to 4.")
    assert report.answer([point(1, 1.0)]) == (
        "On 1 GPU: 100.0 ms a step, 320 samples/s, 0.0\u00a0% of the step exposed communication, scaling efficiency "
        "100.0\u00a0%.")


def test_text_of_the_result_is_no_markup(folder, tmp_path):
    result = json.loads((folder / "result.json").read_text())
    result["scenario"]["question"] = "Is </script><b>this</b> @@DATA@@ bold?"
    for point in result["points"]:
        point["settings"]["model"] = "</script><script>alert(1)</script>"
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert stepcast("report", tmp_path / "result.json", "-o", tmp_path / "page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert "<b>this" not in page and "<script>alert" not in page
    assert "Is &lt;/script&gt;&lt;b&gt;this&lt;/b&gt; @@DATA@@ bold?" in page


def test_a_thousand_points_stay_below_3_mb(folder, tmp_path):
    result = json.loads((folder / "result.json").read_text())
    result["points"] = [dict(result["points"][-1 - i % 2], settings={"cluster.gpus": 16, "training.micro_batch": i})
                        for i in range(1000)]
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert stepcast("report", tmp_path / "result.json", "-o", tmp_path / "page.html").returncode == 0
    assert (tmp_path / "page.html").stat().st_size < 3_000_000


def test_what_it_refuses(folder, tmp_path):
    done = stepcast("report", ROOT / CASE, "-o", tmp_path / "page.html")
    assert (done.returncode, done.stderr) == (2, f"stepcast: {ROOT / CASE}: is no result of stepcast run\n")
    done = stepcast("report", tmp_path / "none.json", "-o", tmp_path / "page.html")
    assert (done.returncode, done.stderr) == (2, f"stepcast: {tmp_path}/none.json: No such file or directory\n")
    done = stepcast("report", folder / "result.json")
    assert (done.returncode, done.stderr) == (2, "stepcast: --output: must be given\n")
    done = stepcast("report", folder / "result.json", "-o", folder)
    assert (done.returncode, done.stderr) == (2, f"stepcast: {folder}: Is a directory\n")
    before = (folder / "result.json").read_bytes()
    done = stepcast("report", folder / "result.json", "-o", folder / "result.json")
    assert (done.returncode, done.stderr) == (2, f"stepcast: {folder}/result.json is an input of this command\n")
    assert (folder / "result.json").read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_stays_what_it_is(folder, tmp_path):
    page = (folder / "page.html").read_text()
    again = ("report", folder / "result.json", ROOT / CASE, "-o")
    assert stepcast(*again, "-").stdout == page
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file.html"
    os.mkfifo(pipe)
    with (tmp_path / "read").open("wb") as read:
        reader = subprocess.Popen(["cat", pipe], stdout=read)
        assert stepcast(*again, pipe, timeout=60).returncode == 0
        assert reader.wait(timeout=20) == 0 and pipe.is_fifo()
    assert (tmp_path / "read").read_text() == page
    link.symlink_to(file)
    file.write_text("before")
    assert stepcast(*again, link).returncode == 0
    assert link.is_symlink() and file.read_text() == page
    assert sorted(tmp_path.iterdir()) == [file, link, pipe, tmp_path / "read"]


@pytest.fixture
def page(folder, tmp_path):
    page = Page(tmp_path)
    page.look()
    page.open(folder / "page.html")
    yield page
    page.close()


VISIBLE = "[...document.querySelectorAll('#points tbody tr')].map(row => Number(row.dataset.point))"
COLUMN = "[...document.querySelectorAll('#points tbody tr')].map(row => row.cells[%d].title)"


def heading(key):
    return f"document.querySelector('#points th[data-key=\"{key}\"] button')"


@in_browser
def test_in_a_browser(page, folder, points):
    """One page for all of it: a browser takes seconds to start."""
    columns = data_of((folder / "page.html").read_text())["columns"]
    place = {column["key"]: index for index, column in enumerate(columns)}

    # The numbers of the table are those of the result.
    steps = [point["step_time_s"] for point in points]
    cells = page.js("[...document.querySelectorAll('#points tbody tr')].map(row => row.cells[%d].textContent)"
                    % place["step_time_s"])
    assert cells == [f"{step * 1e3:.3f}" for step in steps]
    assert [float(text) for text in page.js(COLUMN % place["step_time_s"])] == steps

    # A heading sorts, and sorts the other way the second time.
    page.js(f"{heading('step_time_s')}.click()")
    assert [float(text) for text in page.js(COLUMN % place["step_time_s"])] == sorted(steps)
    page.js(f"{heading('step_time_s')}.click()")
    assert [float(text) for text in page.js(COLUMN % place["step_time_s"])] == sorted(steps, reverse=True)
    assert page.js("document.querySelector('#points th[data-key=\"step_time_s\"]').ariaSort") == "descending"

    # Filters: numbers by comparison, text by what it contains, all of them together.
    def filter_by(key, text):
        page.js(f"""(() => {{
            const input = document.querySelectorAll('#points thead input')[{place[key]}];
            input.value = {json.dumps(text)};
            input.dispatchEvent(new Event('input'));
        }})()""")
        return sorted(page.js(VISIBLE))

    def those(wanted):
        return [index for index, point in enumerate(points) if wanted(point)]

    assert filter_by("world_size", ">2") == those(lambda p: p["world_size"] > 2)
    assert filter_by("world_size", "2..8") == those(lambda p: 2 <= p["world_size"] <= 8)
    assert filter_by("settings.training.accumulation_steps", "=4") == those(
        lambda p: 2 <= p["world_size"] <= 8 and p["accumulation_steps"] == 4)
    assert page.js("document.getElementById('count').textContent") == "2 of 8 points"
    page.js("document.getElementById('clear').click()")
    assert filter_by("basis.communication", "EXTRA") == those(lambda p: p["basis"]["communication"] == "extrapolated")
    assert filter_by("basis.communication", "nothing like it") == []
    page.js("document.getElementById('clear').click()")
    assert sorted(page.js(VISIBLE)) == list(range(8))

    # The charts show what the result says.
    curve = page.js("Chart.getChart('curve').data.datasets.map(set => [set.label, set.data.map(p => [p.x, p.y])])")
    assert [name for name, _ in curve] == ["accumulation steps 4", "accumulation steps 1", "75 %"]  # as sorted
    for name, drawn in curve[:2]:
        some = [p for p in points if p["accumulation_steps"] == int(name[-1])]
        assert drawn == [[p["world_size"], pytest.approx(p["scaling_efficiency"] * 100)] for p in some]
    split = page.js("Chart.getChart('split').data.datasets.map(set => set.data)")
    assert sorted(map(sum, zip(*split))) == pytest.approx(sorted(step * 1e3 for step in steps))
    page.js("document.querySelector('#points tbody tr[data-point=\"6\"]').click()")
    line = page.js("Chart.getChart('line').data.datasets.map(set => [set.label, set.data.map(span => span.x)])")
    sent = [span for name, spans in line if name in ("AllReduce", "broadcast") for span in spans]
    assert sorted(sent) == [pytest.approx([b["start_s"] * 1e3, b["end_s"] * 1e3]) for b in
                            sorted(points[6]["buckets"], key=lambda b: b["start_s"])]

    # Light, dark by the system's wish and by the button; on a phone nothing sticks out.
    back = "getComputedStyle(document.body).backgroundColor"
    assert page.js(back) == "rgb(255, 255, 255)"
    page.look(dark=True)
    assert page.js(back) == "rgb(20, 23, 26)"
    page.js("document.getElementById('theme').click()")
    assert page.js(back) == "rgb(255, 255, 255)"
    page.look(width=390, height=844)
    assert page.js("document.documentElement.scrollWidth") <= 390

    assert page.said() == []
    assert page.fetched() == [(folder / "page.html").resolve().as_uri()]


@in_browser
def test_a_page_of_one_point(folder, tmp_path, page):
    result = json.loads((folder / "result.json").read_text())
    result["points"] = [dict(result["points"][0], settings={})]
    (tmp_path / "one.json").write_text(json.dumps(result))
    assert stepcast("report", tmp_path / "one.json", "-o", tmp_path / "one.html").returncode == 0
    page.open(tmp_path / "one.html")
    assert page.js("document.querySelectorAll('#points tbody tr').length") == 1
    assert page.said() == []
