"""Writes a result as one page for the browser; `stepcast report` runs this.

The page holds its data, its program and Chart.js, and fetches nothing.
"""

import argparse
import html
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from blocked import blocked_spans
from inputs import (
    GPUS,
    Inputs,
    Json,
    NotAResult,
    basis_text,
    measured_pairs,
    name_of,
    provenance,
    read,
    short,
    text_of,
    varied_keys,
)
from output import refuse_inputs, write_whole

PAGE = Path(__file__).resolve().parent / "report"
# Debian's libjs-chart.js and node-chart.js.
CHART_JS = ("/usr/share/javascript/chart.js/chart.min.js", "/usr/share/nodejs/chart.js/dist/chart.min.js")
# Time lines are kept as long as their text is shorter; together with the table of 1,000 points and
# Chart.js the page stays below 3 MB.
MOST_BUCKET_CHARACTERS = 1_500_000

# Of the table and the charts: place in a point, name, unit, factor from the file, digits.
COLUMNS = (
    ("world_size", "GPUs", "", 1, 0),
    ("nodes", "nodes", "", 1, 0),
    ("micro_batch", "micro-batch", "samples", 1, 0),
    ("accumulation_steps", "accumulation steps", "", 1, 0),
    ("global_batch", "global batch", "samples", 1, 0),
    ("step_time_s", "step time", "ms", 1e3, 3),
    ("step_time_band_s.0", "band, low", "ms", 1e3, 3),
    ("step_time_band_s.1", "band, high", "ms", 1e3, 3),
    ("split.compute_s", "compute", "ms", 1e3, 3),
    ("split.exposed_comm_s", "exposed", "ms", 1e3, 3),
    ("split.host_s", "host", "ms", 1e3, 3),
    ("split.wait_s", "wait", "ms", 1e3, 3),
    ("split.optimizer_s", "optimizer", "ms", 1e3, 3),
    ("comm_fraction", "exposed share", "%", 1e2, 2),
    ("overlapped_comm_s", "hidden", "ms", 1e3, 3),
    ("throughput_samples_per_s", "throughput", "samples/s", 1, 1),
    ("scaling_efficiency", "efficiency", "%", 1e2, 2),
    ("memory.known_bytes", "memory known", "GiB", 1 / (1 << 30), 2),
    ("memory.fits", "fits", "", 1, 0),
    ("host_bound", "host-bound", "", 1, 0),
    ("basis.compute", "compute basis", "", 1, 0),
    ("basis.communication", "comm. basis", "", 1, 0),
    ("engine", "engine", "", 1, 0),
)
MEANINGS = {  # docs/results.md, "Basis"
    "measured": "the time itself was measured",
    "mechanism": "no calibration: nominal link rates and overheads of the platform",
    "interpolated": "between sizes or ranks that were measured",
    "extrapolated": "outside what was measured or fitted, or on another machine",
    "modelled": "by the share of the GPU that a collective takes; not measured",
    "set": "by the scenario",
    "none": "there is none",
}


def at(point: Json, path: str) -> Any:
    value: Any = point
    for word in path.split("."):
        if value is None:
            return None
        value = value[int(word)] if isinstance(value, list) else value.get(word)
    return value


def percent(fraction: float) -> str:
    return f"{fraction * 100:.1f}\u00a0%"


def gpus_text(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"


def answer(points: Sequence[Json]) -> str:
    """What the points say to the question, in a sentence or two."""
    def told(point: Json) -> str:
        return (f"{point['step_time_s'] * 1e3:.1f} ms a step, {point['throughput_samples_per_s']:,.0f} samples/s, "
                f"{percent(point['comm_fraction'])} of the step exposed communication, scaling efficiency "
                f"{percent(point['scaling_efficiency'])}")

    keys = varied_keys(points)
    if len(points) == 1:
        return f"On {gpus_text(points[0]['world_size'])}: {told(points[0])}."
    sizes = sorted({point["world_size"] for point in points})
    if keys == [GPUS]:
        largest = max(points, key=lambda point: point["world_size"])
        good = [point["world_size"] for point in points if point["scaling_efficiency"] >= 0.75]
        limit = (f"Efficiency stays above 75 % on every number of GPUs up to {sizes[-1]}." if len(good) == len(points)
                 else f"Efficiency is 75 % or more up to {gpus_text(max(good))}." if good
                 else "Efficiency is below 75 % everywhere.")
        return f"On {gpus_text(largest['world_size'])}: {told(largest)}. {limit}"
    # With a choice of settings: the best of them on the most GPUs.
    largest = [point for point in points if point["world_size"] == sizes[-1]]
    best = max(largest, key=lambda point: point["throughput_samples_per_s"])
    worst = min(largest, key=lambda point: point["throughput_samples_per_s"])
    others = [key for key in keys if key != GPUS]
    text = f"On {gpus_text(sizes[-1])} most samples/s come with {name_of(best['settings'], others)}: {told(best)}."
    if worst is not best:
        gain = best["throughput_samples_per_s"] / worst["throughput_samples_per_s"] - 1
        text += f" That is {percent(gain)} more than with {name_of(worst['settings'], others)}."
    return text


def table_of(points: Sequence[Json]) -> tuple[list[Json], list[list[Any]]]:
    """Columns and rows; a value stands in a row as it stands in the result."""
    settings = [key for key in dict.fromkeys(key for point in points for key in point["settings"]) if key != GPUS]
    columns: list[Json] = [{"key": f"settings.{key}", "name": short(key), "unit": "", "factor": 1, "digits": None,
                            "bytes": key.endswith("bytes")} for key in settings]
    rows: list[list[Any]] = [[point["settings"].get(key) for key in settings] for point in points]
    named = {key.split(".", 1)[1] for key in settings if "." in key}
    for path, name, unit, factor, digits in COLUMNS:
        values = [at(point, path) for point in points]
        if path in named or all(value is None for value in values):
            continue
        columns.append({"key": path, "name": name, "unit": unit, "factor": factor, "digits": digits})
        for row, value in zip(rows, values):
            row.append(value)
    return columns, rows


def time_lines_of(points: Sequence[Json]) -> list[Json | None]:
    """Collectives and blocked spans of each point, None where the page would grow too large."""
    found: list[Json | None] = []
    room = MOST_BUCKET_CHARACTERS
    for point in points:
        buckets = [[b["operation"], b["bytes"], b["algorithm"], b["protocol"], b["ready_s"], b["start_s"], b["end_s"],
                    b["busbw_Bps"], b["runs_per_step"], b["relative_error"], b["basis"]] for b in point["buckets"]]
        # Blocked spans are worked out, so ten digits are more than they know.
        blocked = [[float(f"{begin:.10g}"), float(f"{end:.10g}")] for begin, end in blocked_spans(point)]
        entry: Json = {"buckets": buckets, "blocked": blocked}
        room -= len(json.dumps(entry))
        found.append(entry if room >= 0 else None)
    return found


def flat(value: Any, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [entry for key, each in value.items() for entry in flat(each, f"{name}.{key}" if name else key)]
    if isinstance(value, (dict, list)):
        return [(name, json.dumps(value))]
    return [(name, text_of(name, value))]


def rows_html(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table class="plain"><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def settings_html(result: Json) -> str:
    scenario = dict(result["scenario"])
    vary = scenario.pop("vary", {})
    rows = []
    for key, value in flat({k: v for k, v in scenario.items() if k not in ("format", "question", "model", "platform",
                                                                         "calibration")}, ""):
        if key in vary:
            value = "varies: " + ", ".join(text_of(key, each) for each in vary[key]) if isinstance(
                vary[key], list) else f"varies: {json.dumps(vary[key])}"
        rows.append((key, value))
    rows += [(key, f"varies: {json.dumps(value)}") for key, value in vary.items() if key not in {row[0] for row in rows}]
    return rows_html(rows, ("setting", "value"))


def sources_html(result: Json) -> str:
    rows = []
    for kind in ("model", "platform", "calibration"):
        given = result["inputs"][kind]
        rows.append((kind, given["name"], given["source"], Path(given["path"]).name) if given
                    else (kind, "none", "nominal figures of the platform", ""))
    return rows_html(rows, ("what", "name", "source", "file"))


def basis_html(points: Sequence[Json]) -> str:
    rows = []
    for part in ("compute", "communication", "interference"):
        kinds: dict[str, list[Json]] = {}
        for point in points:
            kinds.setdefault(point["basis"].get(part) or "none", []).append(point)
        for kind, some in kinds.items():
            gpus = ", ".join(str(size) for size in sorted({point["world_size"] for point in some}))
            rows.append((part, kind, f"{len(some)} of {len(points)} (GPUs: {gpus})", MEANINGS.get(kind, "")))
    return rows_html(rows, ("part", "basis", "points", "that is"))


def signed(fraction: float) -> str:
    return f"{fraction * 100:+.1f}\u00a0%"


def errors_html(inputs: Inputs) -> str:
    """What is known of how wrong the figures may be."""
    assert inputs.result
    rows: list[tuple[str, str, str]] = []
    lows = [at(p, "step_time_band_s.0") / p["step_time_s"] - 1 for p in inputs.points if p["step_time_band_s"]]
    highs = [at(p, "step_time_band_s.1") / p["step_time_s"] - 1 for p in inputs.points if p["step_time_band_s"]]
    if lows:
        rows.append(("band of the step time", f"{signed(min(lows))} to {signed(max(highs))}",
                     "widest of all points: eight of ten measured steps were within it, over all that stepcast "
                     "was compared with (docs/accuracy.md). That ends at 32 GPUs; further away nothing is known"))
    of_basis: dict[str, list[float | None]] = {}
    for point in inputs.points:
        for bucket in point["buckets"]:
            of_basis.setdefault(bucket["basis"], []).append(bucket["relative_error"])
    for basis, errors in of_basis.items():
        known = [error for error in errors if error is not None]
        text = f"{percent(min(known))} to {percent(max(known))}" if known else "not known"
        rows.append((f"collectives, {basis}", text, "standard error of the time of a collective"))
    given = inputs.result["inputs"]["calibration"]
    calibration = given["document"] if given else {}
    for protocol in calibration.get("protocols") or []:
        residuals = protocol.get("residuals")
        if residuals:
            rows.append((f"calibration, {protocol['name']}",
                         f"median {percent(residuals['median_abs'])}, worst {percent(residuals['max_abs'])}",
                         f"of {residuals['samples']} samples that it was fitted on"))
    curves = [each["residuals"] for each in calibration.get("curves") or [] if each.get("residuals")]
    if curves:
        rows.append(("calibration, curves", f"median {percent(max(each['median_abs'] for each in curves))}, "
                     f"worst {percent(max(each['max_abs'] for each in curves))}",
                     f"the largest of {len(curves)} curves of {calibration.get('platform', 'the machine')}"))
    for name, row, point in measured_pairs(inputs):
        rows.append((f"measured, {name}", signed(point["step_time_s"] / row["step_time_s"] - 1),
                     f"forecast {point['step_time_s'] * 1e3:.1f} ms, measured {row['step_time_s'] * 1e3:.1f} ms"))
    text = rows_html(rows, ("figure", "error", "of what"))
    for case in inputs.cases:
        text += f"<p class=note>Measured: {html.escape(case['name'])}. {html.escape(case['source'])}</p>"
    platform = inputs.result["inputs"]["platform"]["name"]
    if given and calibration.get("platform") not in (None, platform):
        text = (f"<p class=warn>The calibration was measured on {html.escape(calibration['platform'])}, not on "
                f"{html.escape(platform)}: communication is extrapolated.</p>") + text
    return text


def page_of(inputs: Inputs, chart_js: str) -> str:
    result = inputs.result
    assert result
    points = inputs.points
    columns, rows = table_of(points)
    data = {
        "columns": columns,
        "rows": rows,
        "names": [name_of(point["settings"], list(point["settings"])) or gpus_text(point["world_size"])
                  for point in points],
        "varied": [f"settings.{key}" for key in varied_keys(points) if key != GPUS],
        "timeLines": time_lines_of(points),
    }
    # In a script, only "</" and "<!--" could end it early.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    measured = ", ".join(basis_text(part, points) for part in ("compute", "communication", "interference"))
    parts = {
        "QUESTION": html.escape(str(result["scenario"]["question"])),
        "ANSWER": html.escape(answer(points)),
        "BASIS": html.escape(measured),
        "SETTINGS": settings_html(result),
        "SOURCES": sources_html(result),
        "MEASURED": basis_html(points),
        "ERRORS": errors_html(inputs),
        "PROVENANCE": html.escape(" · ".join(provenance(result, points))),
        "STYLE": (PAGE / "page.css").read_text(encoding="utf-8"),
        "CHART_JS": chart_js,
        "SCRIPT": (PAGE / "page.js").read_text(encoding="utf-8"),
        "DATA": text,
    }
    # Piece by piece, so that what is put in is not searched again.
    pieces = (PAGE / "page.html").read_text(encoding="utf-8").split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    if isinstance(value, list):
        return all(map(finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", metavar="RESULT")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the page")
    options = parser.parse_args()
    library = next((path for path in map(Path, CHART_JS) if path.exists()), None)
    if library is None:
        print("stepcast: there is no Chart.js here, Debian's libjs-chart.js: ./dev setup installs it", file=sys.stderr)
        return 3
    try:
        refuse_inputs(options.output, options.files)
        inputs = read(options.files)
        if inputs.result is None:
            raise NotAResult(f"{options.files[0]}: is no result of stepcast run")
        if not finite(inputs.result):
            raise NotAResult(f"{options.files[0]}: holds a number that is not finite")
        page = page_of(inputs, library.read_text(encoding="utf-8"))
        if str(options.output) == "-":
            sys.stdout.write(page)
            sys.stdout.flush()
        else:
            write_whole(options.output, lambda path: path.write_text(page, encoding="utf-8"))
    except NotAResult as error:
        print(f"stepcast: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"stepcast: {options.output}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
