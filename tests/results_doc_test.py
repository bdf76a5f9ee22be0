"""docs/results.md describes each figure that the program writes, none that it does not write, and
each as it is computed."""

import csv
import importlib.util
import io
import json
import math
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
PAGE = (ROOT / "docs/results.md").read_text(encoding="utf-8")

spec = importlib.util.spec_from_file_location("make_formats", ROOT / "docs/make_formats.py")
make_formats = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_formats)

QUICKSTART = "scenarios/quickstart.json"
RUNS = {
    "quickstart": (QUICKSTART,),
    "not calibrated": (QUICKSTART, "--set", "calibration=null"),
    "accumulation": (
        *(QUICKSTART, "--set", "training.accumulation_steps=4"),
        *("--set", "training.accumulation=sync_every_micro_step"),
    ),
    "after backward": (
        *(QUICKSTART, "--set", "training.sync=flat"),
        *("--set", "training.reference_global_batch=256"),
        *("--set", "model.measured.0.activation_bytes=3e9"),
        *("--set", "platform.node.price_per_hour_usd=24.5", "--set", "platform.node.price_date=2025-06"),
        *("--set", "platform.node.price_source=made up"),
    ),
    "a point that fails": (
        *(QUICKSTART, "--set", "vary.cluster.gpus=[1,2]", "--set", "collective.algorithm=nvls"),
    ),
}
RUNS["too large"] = (
    *(QUICKSTART, "--set", "training.accumulation_steps=3"),
    *("--set", "model.measured.0.activation_bytes=64e9"),
)
COLLECTIVE = ("--platform", "platforms/dgx1v.json", "--gpus", "16", "--bytes", "1KiB,64MiB")


@cache
def stepcast(*words: str) -> str:
    done = subprocess.run([STEPCAST, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or " points failed" in done.stderr, done.stderr
    return done.stdout


def result_of(run: str) -> Any:
    return json.loads(stepcast("run", *RUNS[run], "-o", "-"))


def collective() -> Any:
    return json.loads(stepcast("collective", *COLLECTIVE, "--explain", "--json", "-"))


# ---- keys ----------------------------------------------------------------------------------------

# What a user or another format names: docs/formats.md tells more.
OPAQUE = re.compile(r"scenario|inputs\.\w+\.document|points\[\]\.settings")


def paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and not OPAQUE.fullmatch(path):
        for key, member in value.items():
            below = f"{path}.{key}".lstrip(".")
            yield below
            yield from paths(member, below)
    elif isinstance(value, list):
        for entry in value:
            yield from paths(entry, f"{path}[]")


def written(name: str) -> set[str]:
    if name == "collective":
        return set(paths(collective()))
    return {path for run in RUNS for path in paths(result_of(run))}


def documented(name: str) -> set[str]:
    """The keys in the tables of the page, whoever wrote them."""
    found = set()
    for block in re.findall(r"<!-- keys of .*?<!-- end of keys -->", PAGE, re.DOTALL):
        _, table, relation, prefix, _ = make_formats.BLOCK.fullmatch(block).groups()
        if table == name:
            for key in re.findall(r"^\| `([^`]+)` \|", block, re.MULTILINE):
                found.add(f"{prefix}.{key}" if relation == "under" else key)
    return found


@pytest.mark.parametrize("name", ["result", "collective"])
def test_page_has_the_keys_that_are_written(name: str) -> None:
    in_schema = {key.path for key in make_formats.keys(make_formats.load(name))}
    on_page = documented(name)
    assert sorted(written(name) - on_page) == [], "written, not in docs/results.md"
    assert sorted(in_schema - on_page) == [], "in the schema, not in docs/results.md"
    assert sorted(on_page - written(name)) == [], "in docs/results.md, not written"


def test_text_names_only_keys_that_exist() -> None:
    known: set[str] = set()
    for name in ("scenario", "trace", "platform", "calibration", "result", "collective"):
        for key in make_formats.keys(make_formats.load(name)):
            known |= {key.path, key.path.removeprefix("points[].")}
            known |= {key.path.rpartition(".")[2], *key.schema.get("enum", [])}
            known.add(".".join(key.path.replace("[]", "").split(".")[-2:]))
    known |= {f"settings.{key}" for key in result_of("quickstart")["points"][0]["settings"]}
    words = re.findall(r"`([a-z]+(?:[._][A-Za-z0-9_.]+)+)`", PAGE)
    others = {"stepcast.result/1", "stepcast.collective/1", "docs/make_formats.py"}
    others |= {"step_time_band_s.0", "step_time_band_s.1"}  # columns of the CSV
    assert sorted(set(words) - known - others) == []


def test_csv_has_the_documented_names() -> None:
    names = next(csv.reader(io.StringIO(stepcast("run", QUICKSTART, "--csv", "-"))))
    point = result_of("quickstart")["points"][0]
    lists = {key for key, value in point.items() if isinstance(value, list)}
    assert {f"`{key}`" for key in lists} <= set(re.findall(r"`\w+`", section("CSV")))
    keys = {path.removeprefix("points[].") for path in documented("result") if "points[]." in path}
    objects = {key.rpartition(".")[0] for key in keys if "." in key}
    figures = {key for key in keys - objects - lists if "[]" not in key} - {"settings", "error"}
    figures |= {f"step_time_band_s.{end}" for end in (0, 1)}
    assert set(names) == figures | {f"settings.{key}" for key in point["settings"]}
    assert names[0] == "settings.cluster.gpus"


# ---- tables on the terminal ----------------------------------------------------------------------


def section(title: str) -> str:
    return re.search(rf"^##+ {title}\n(.*?)(?=^##+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


def columns(command: str) -> list[tuple[str, str, str]]:
    """Head, JSON name and unit of each documented column."""
    body = section("Tables on the terminal").partition(f"| column of {command} |")[2]
    rows = body.partition("\n\n")[0].splitlines()[2:]
    return [tuple(cell.strip().strip("`") for cell in row.split("|")[1:4]) for row in rows]


FACTORS = {"ms": 1e3, "us": 1e6, "%": 1e2, "GB/s": 1e-9}


def check_cells(command: str, rows: list[str], entries: list[Any]) -> None:
    """Each cell is the figure that the page names, in the unit that it names."""
    assert len(rows) == len(entries) > 1
    for row, entry in zip(rows, entries):
        cells = [cell.removesuffix(" %") for cell in re.split(r"  +", row.strip())]
        for cell, (head, name, unit) in zip(cells, columns(command), strict=True):
            value = entry
            for key in name.split("."):
                value = value[key]
            if isinstance(value, list):
                step = entry["step_time_s"]
                assert cell == " ".join(f"{100 * (end / step - 1):+.1f}" for end in value), head
            elif isinstance(value, int | float):
                digits = len(cell.partition(".")[2])
                assert float(cell) == round(value * FACTORS.get(unit, 1), digits), head
            else:
                assert cell == (value or "none"), head


def test_columns_of_run() -> None:
    lines = stepcast("run", QUICKSTART).splitlines()
    points = result_of("quickstart")["points"]
    assert re.split(r"  +", lines[3].strip()) == [head for head, _, _ in columns("run")]
    check_cells("run", lines[4 : 4 + len(points)], points)
    varied = stepcast("run", QUICKSTART, "--set", "vary.training.accumulation_steps=[1,2]")
    assert varied.splitlines()[3].split()[:2] == ["accumulation_steps", "GPUs"]


def test_columns_of_collective() -> None:
    lines = stepcast("collective", *COLLECTIVE).splitlines()
    heads = lines[1].lstrip("# ").split()
    assert heads == [head for head, _, _ in columns("collective")]
    units = [unit for _, _, unit in columns("collective") if unit]
    assert lines[2].lstrip("# ").split() == [f"({unit})" for unit in units]
    check_cells("collective", lines[3:], collective()["rows"])


# ---- definitions ---------------------------------------------------------------------------------


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("run", RUNS)
def test_figures_are_what_the_page_says(run: str) -> None:
    result = result_of(run)
    points = [point for point in result["points"] if "error" not in point]
    alone = next(point for point in points if point["world_size"] == 1)
    measured = result["inputs"]["model"]["document"]["measured"][0]["step_time_s"]
    calibration = result["inputs"]["calibration"]
    protocols = calibration["document"]["protocols"] if calibration else []
    worst = {entry["name"]: entry["residuals"]["max_abs"] for entry in protocols}
    for point in points:
        n, step = point["world_size"], point["step_time_s"]
        split, buckets = point["split"], point["buckets"]
        samples = point["micro_batch"] * point["accumulation_steps"]
        assert point["global_batch"] == samples * n
        assert sum(split.values()) == close(step)
        assert point["overlapped_comm_s"] == close(point["comm_s"] - split["exposed_comm_s"])
        assert point["comm_fraction"] == close(split["exposed_comm_s"] / step)
        assert point["throughput_samples_per_s"] == close(point["global_batch"] / step)
        assert point["scaling_efficiency"] == close(alone["step_time_s"] / step)
        price = result["inputs"]["platform"]["document"]["node"].get("price_per_hour_usd")
        cost = None if price is None else close(point["nodes"] * price / 3600 * step)
        assert point["cost_per_step_usd"] == cost
        per_sample = None if price is None else close(1e6 * price * point["nodes"] / 3600 * step / point["global_batch"])
        assert point["cost_per_million_samples_usd"] == per_sample

        on_gpu = split["compute_s"] + split["host_s"] + split["optimizer_s"]
        busy = [(b["end_s"] - b["start_s"]) * b["runs_per_step"] for b in buckets]
        residuals = [worst.get(b["protocol"], 0) * time for b, time in zip(buckets, busy)]
        error = sum(residuals) / sum(busy) * split["exposed_comm_s"] if buckets else 0
        low, high = point["step_time_band_s"]
        band = point["band_of"]
        assert band["trace"]["below_s"] == close(on_gpu * (1 - measured["min"] / measured["median"]))
        assert band["trace"]["above_s"] == close(on_gpu * (measured["max"] / measured["median"] - 1))
        assert band["calibration"] == {"below_s": close(error), "above_s": close(error)}
        if point["world_size"] == 1:
            assert band["computation"] == band["communication"] == {"below_s": 0, "above_s": 0}
        assert low == close(step - math.hypot(*(margin["below_s"] for margin in band.values())))
        assert high == close(step + math.hypot(*(margin["above_s"] for margin in band.values())))

        def bytes_of(operation: str) -> int:
            return sum(
                b["bytes"] * b["runs_per_step"] for b in buckets if b["operation"] == operation
            )

        reduced = bytes_of("all_reduce")
        assert point["all_reduce_bytes_per_sample"] == close(reduced / samples)
        # A ring; NCCL rounds its blocks, so the rank that sends most is a little above.
        sent = 2 * (n - 1) / n * reduced + (bytes_of("broadcast") if n > 1 else 0)
        assert sent * (1 - 1e-9) <= point["sent_bytes_per_rank"] <= sent * 1.01
        order = ("measured", "mechanism", "interpolated", "extrapolated")
        reductions = [b["basis"] for b in buckets if b["operation"] == "all_reduce"]
        weakest = max(reductions, key=order.index, default=None)
        assert point["basis"] == {
            "compute": "measured",
            "communication": weakest,
            "interference": "modelled" if buckets else "none",
        }
        assert (weakest == "mechanism") == (calibration is None and n > 1)
        for bucket in buckets:
            assert bucket["ready_s"] <= bucket["start_s"] < bucket["end_s"]
            time = bucket["end_s"] - bucket["start_s"]
            assert bucket["algbw_Bps"] == pytest.approx(bucket["bytes"] / time, rel=1e-6)
            factor = 2 * (n - 1) / n if bucket["operation"] == "all_reduce" else 1
            assert bucket["busbw_Bps"] == close(bucket["algbw_Bps"] * factor)
        for link in point["links"]:
            mean_bytes = link["total_bytes"] / link["links"]
            assert mean_bytes * (1 - 1e-9) <= link["busiest_bytes"] <= link["total_bytes"]

        memory = point["memory"]
        parts = ("parameters", "master", "gradients", "optimizer", "bucket", "hook", "nccl", "framework", "activation")
        assert memory["known_bytes"] == sum(memory[f"{part}_bytes"] or 0 for part in parts)
        channels = {bucket["algorithm"]: 0 for bucket in buckets}
        for bucket in buckets:
            channels[bucket["algorithm"]] = max(channels[bucket["algorithm"]], bucket["channels"])
        connections = sum(count * (3 if "tree" in name else 1) for name, count in channels.items())
        assert memory["nccl_bytes"] == connections * (512 * 1024 + 4915200 + 4 * 1024 * 1024)
        assert memory["bucket_bytes"] == (memory["gradients_bytes"] if buckets else 0)
        activations, gpu = memory["activation_bytes"], memory["gpu_bytes"]
        assert memory["fits"] == (None if activations is None else memory["known_bytes"] <= gpu)
        fitting = (memory["fitting_micro_batch"], memory["fitting_accumulation_steps"])
        if memory["fits"] is False:
            others = memory["known_bytes"] - activations
            sizes = [b for b in range(1, samples + 1) if samples % b == 0]
            size = max(b for b in sizes if others + activations * b / point["micro_batch"] <= gpu)
            assert fitting == (size, samples // size)
        else:
            assert fitting == (None, None)

        wanted = result["scenario"]["training"]["reference_global_batch"]
        reference = point["micro_batch"] if wanted == "auto" else wanted
        growth = point["global_batch"] / reference
        assert point["learning_rate"] == {
            "reference_global_batch": reference,
            "linear_factor": close(growth),
            "sqrt_factor": close(math.sqrt(growth)),
            "rule": "linear",
            "warm_up_epochs": 5 if growth > 1 else 0,
            "batch_norm_samples": point["micro_batch"],
        }


def test_rows_are_what_the_page_says() -> None:
    for row in collective()["rows"]:
        factor = 2 * (row["ranks"] - 1) / row["ranks"]
        assert row["algbw_Bps"] == close(row["bytes"] / row["time_s"])
        assert row["busbw_Bps"] == close(row["algbw_Bps"] * factor)
        assert row["sent_bytes_per_rank"] >= factor * row["bytes"] * (1 - 1e-9)
