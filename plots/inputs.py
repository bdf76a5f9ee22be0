"""What can be drawn: results, tables of collectives, calibrations and measured cases.

Needs nothing but Python, so that the report can do without matplotlib.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

RESULT = "stepcast.result/1"
COLLECTIVE = "stepcast.collective/1"
CALIBRATION = "stepcast.calibration/1"
VALIDATE = "stepcast.validate/1"
GPUS = "cluster.gpus"
BUSBW_FACTORS = {  # busbw = algbw * factor(n ranks), docs/results.md "Bandwidths"
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
}
# What the scripts read; a file that lacks one of them is refused before anything is drawn.
POINT_KEYS = (
    "settings engine world_size nodes micro_batch accumulation_steps global_batch step_time_s "
    "step_time_band_s split comm_s overlapped_comm_s comm_fraction throughput_samples_per_s "
    "scaling_efficiency memory basis buckets"
).split()
SPLIT_KEYS = ("compute_s", "exposed_comm_s", "host_s", "wait_s", "optimizer_s")
BUCKET_KEYS = (
    "operation bytes algorithm protocol ready_s start_s end_s busbw_Bps runs_per_step "
    "relative_error basis"
).split()
CASE_KEYS = ("id", "split", "predicted", "low", "high", "measured", "error", "basis")
ROW_KEYS = ("bytes", "ranks", "algorithm", "protocol", "time_s", "busbw_Bps", "basis")


class NotAResult(Exception):
    """The file cannot be drawn; the text is one line that says why."""


@dataclass
class Inputs:
    result: Json | None = None
    collectives: list[Json] = field(default_factory=list)
    calibrations: list[Json] = field(default_factory=list)
    cases: list[Json] = field(default_factory=list)
    validated: list[Json] = field(default_factory=list)  # suites of stepcast validate --json

    @property
    def points(self) -> list[Json]:
        return self.result["points"] if self.result else []

    @property
    def samples(self) -> list[Json]:
        """Everything that was measured, of the files and of the result's own calibration."""
        calibrations = list(self.calibrations)
        if self.result and self.result["inputs"]["calibration"]:
            calibrations.append(self.result["inputs"]["calibration"]["document"])
        samples = [{"platform": each.get("platform", ""), **sample}
                   for each in calibrations for sample in each.get("samples", [])]
        # A calibration that is named twice is drawn once.
        return list({json.dumps(sample, sort_keys=True): sample for sample in samples}.values())


def need(entry: Any, keys: Sequence[str], where: str) -> None:
    for key in keys:
        if not isinstance(entry, dict) or key not in entry:
            raise NotAResult(f"lacks {key!r} in {where or '/'}")


def check_result(result: Json) -> None:
    need(result, ("scenario", "versions", "inputs", "points"), "")
    need(result["scenario"], ("question",), "/scenario")
    need(result["versions"], ("stepcast", "revision", "simgrid"), "/versions")
    need(result["inputs"], ("model", "platform", "calibration"), "/inputs")
    if not isinstance(result["points"], list) or not result["points"]:
        raise NotAResult("has no points to draw")
    failed = [point for point in result["points"] if isinstance(point, dict) and "error" in point]
    if len(failed) == len(result["points"]):
        raise NotAResult(f"has no points to draw: all failed, such as: {failed[0]['error']}")
    if failed:
        print(f"left out {len(failed)} of {len(result['points'])} points, which failed", file=sys.stderr)
        result["points"] = [point for point in result["points"] if point not in failed]
    for index, point in enumerate(result["points"]):
        need(point, POINT_KEYS, f"/points/{index}")
        need(point["split"], SPLIT_KEYS, f"/points/{index}/split")
        for number, bucket in enumerate(point["buckets"]):
            need(bucket, BUCKET_KEYS, f"/points/{index}/buckets/{number}")


def check_collective(table: Json) -> None:
    need(table, ("platform", "operation", "engine", "versions", "rows"), "")
    for index, row in enumerate(table["rows"]):
        need(row, ROW_KEYS, f"/rows/{index}")


def add(inputs: Inputs, path: Path) -> None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotAResult(error.strerror) from error
    except ValueError as error:
        raise NotAResult(f"is not JSON: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found == RESULT:
        check_result(document)
        if inputs.result:
            raise NotAResult("is a second result; one at a time can be drawn")
        inputs.result = document
    elif found == COLLECTIVE:
        check_collective(document)
        inputs.collectives.append(document)
    elif found == CALIBRATION:
        inputs.calibrations.append(document)
    elif found == VALIDATE:
        need(document, ("suites", "versions"), "")
        for index, suite in enumerate(document["suites"]):
            need(suite, ("name", "source", "cases"), f"/suites/{index}")
            for number, case in enumerate(suite["cases"]):
                need(case, CASE_KEYS, f"/suites/{index}/cases/{number}")
            inputs.validated.append({**suite, "versions": document["versions"]})
    elif isinstance(document, dict) and "measured" in document and "scenario" in document:
        need(document, ("name", "source"), "")
        for index, row in enumerate(document["measured"]):
            need(row, ("step_time_s",), f"/measured/{index}")
        inputs.cases.append(document)
    else:
        raise NotAResult(
            f'"format" must be "{RESULT}", "{COLLECTIVE}" or "{CALIBRATION}", '
            f"got {json.dumps(found)[:60]}"
        )


def read(paths: Sequence[Path]) -> Inputs:
    """Reads all files; the text of NotAResult begins with the file's name."""
    inputs = Inputs()
    for path in paths:
        try:
            add(inputs, path)
        except NotAResult as error:
            raise NotAResult(f"{path}: {error}") from error
        except (TypeError, ValueError, AttributeError) as error:
            raise NotAResult(f"{path}: is not whole: {error}") from error
    return inputs


def varied_keys(points: Sequence[Json]) -> list[str]:
    """Keys with more than one value, in the order of the scenario."""
    keys = list(dict.fromkeys(key for point in points for key in point["settings"]))
    return [key for key in keys if len({json.dumps(p["settings"].get(key)) for p in points}) > 1]


def text_of(key: str, value: Any) -> str:
    """A setting as people say it: bytes in MiB or KiB where that is exact, files without a path."""
    if value is None:
        return "–"
    if key.endswith("bytes") and isinstance(value, int):
        return bytes_text(value)
    return Path(value).name.removesuffix(".json") if isinstance(value, str) else json.dumps(value)


def bytes_text(value: float, digits: int | None = None) -> str:
    """Exact, or rounded to that many digits."""
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= size and value % size == 0:
            return f"{int(value) // size} {unit}"
        if value >= size and digits:
            return f"{value / size:.{digits}g} {unit}"
    return f"{value:g} B"


def short(key: str) -> str:
    return "GPUs" if key == GPUS else key.split(".", 1)[-1].replace("_", " ").replace(" bytes", "")


def axis_name(key: str) -> str:
    """A varied key with its unit."""
    units = {"accumulation_steps": "micro-steps", "micro_batch": "samples", "channels": "channels"}
    if key == GPUS:
        return "GPUs"
    last = key.rsplit(".", 1)[-1]
    unit = ("B" if last.endswith("bytes") else "B/s" if last.endswith("_Bps")
            else "s" if last.endswith("_s") else units.get(last, ""))
    return f"{key} [{unit}]" if unit else key


def name_of(settings: Json, keys: Sequence[str]) -> str:
    """`bucket cap 25 MiB, 8 GPUs`"""
    parts = []
    for key in keys:
        if key in settings:
            value = text_of(key, settings[key])
            parts.append(f"{value} GPU{'' if value == '1' else 's'}" if key == GPUS
                         else f"{short(key)} {value}")
    return ", ".join(parts)


def measured_pairs(inputs: Inputs) -> list[tuple[str, Json, Json]]:
    """Of each measured row of a case, its name, the row and the point with the same settings."""
    pairs = []
    for case in inputs.cases:
        for row in case["measured"]:
            wanted = {key: value for key, value in row.items() if "." in key}
            for point in inputs.points:
                settings = {GPUS: point["world_size"], **point["settings"]}
                if all(settings.get(key) == value for key, value in wanted.items()):
                    pairs.append((name_of(wanted, list(wanted)), row, point))
                    break
    return pairs


def basis_text(part: str, points: Sequence[Json]) -> str:
    """`compute measured` or, point by point, `compute measured (8 GPUs), extrapolated (16 GPUs)`"""
    kinds: dict[str, list[Json]] = {}
    for point in points:
        kinds.setdefault(point["basis"].get(part) or "none", []).append(point)
    if len(kinds) == 1:
        return f"{part} {next(iter(kinds))}"
    by_gpus = all(set(point["settings"]) == {GPUS} for point in points)

    def members(some: list[Json]) -> str:
        if by_gpus:
            gpus = ", ".join(str(point["settings"][GPUS]) for point in some)
            return f"{gpus} GPU{'' if gpus == '1' else 's'}"
        return f"{len(some)} of {len(points)} points"

    return f"{part} " + ", ".join(f"{kind} ({members(some)})" for kind, some in kinds.items())


def provenance(result: Json, points: Sequence[Json]) -> list[str]:
    """Where the figures of these points come from."""
    versions, files = result["versions"], result["inputs"]
    engines = ", ".join(sorted({point["engine"] for point in points}))
    facts = [
        f"stepcast {versions['stepcast']} ({versions['revision']})",
        f"engine {engines}" + (f" {versions['simgrid']}" if engines == "simgrid" else ""),
        f"model {files['model']['name']}",
        f"platform {files['platform']['name']}",
    ]
    if files["calibration"]:
        source = files["calibration"]["source"]
        facts.append(f"calibration {files['calibration']['name']}, from {source}")
    else:
        facts.append("calibration none")
    bases = "; ".join(basis_text(part, points) for part in ("compute", "communication"))
    return [*facts, f"basis: {bases}"]
