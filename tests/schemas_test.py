"""The JSON Schemas in docs/schemas/ and docs/formats.md say what the program accepts and writes.

Small valid documents are damaged in every way that their schema knows of. The program must accept
a damaged document exactly when the schema does, and must refuse the others by one line that names
the file and the place in it.
"""

import importlib.util
import json
import math
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent
STEPCAST = os.environ.get("STEPCAST", str(ROOT / "build/release/stepcast"))
INPUT_FORMATS = ("scenario", "trace", "platform", "calibration")
FORMATS = (*INPUT_FORMATS, "result", "collective", "validation", "validate")

spec = importlib.util.spec_from_file_location("make_formats", ROOT / "docs/make_formats.py")
make_formats = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_formats)

SCHEMAS = {name: make_formats.load(name) for name in FORMATS}
VALIDATORS = {name: jsonschema.Draft202012Validator(SCHEMAS[name]) for name in FORMATS}


def validate(document: Any) -> None:
    """Against the schema of its "format"."""
    validator = VALIDATORS[document["format"].removeprefix("stepcast.").removesuffix("/1")]
    assert [f"{e.json_path}: {e.message}" for e in validator.iter_errors(document)] == []


# ---- valid documents: "full" has every key, "small" only those that must be there ----------------

SCENARIO_SMALL = {
    "format": "stepcast.scenario/1",
    "question": "Does it run?",
    "model": "trace.json",
    "platform": "platform.json",
    "cluster": {"gpus": 2},
}
SCENARIO_FULL = {
    **SCENARIO_SMALL,
    "calibration": "calibration.json",
    "training": {
        "micro_batch": 4,
        "accumulation_steps": 3,
        "sync": "ddp",
        "accumulation": "no_sync",
        "bucket_cap_bytes": 1000,
        "first_bucket_bytes": 100,
        "broadcast_buffers": True,
        "gradient_as_bucket_view": True,
        "host_per_kernel_s": 1e-5,
        "find_unused_parameters": True,
        "communication_hook": "fp16",
        "iteration": "first",
        "synchronized_batch_norm": True,
        "fusion_bytes": 1000,
        "cycle_time_s": 0.001,
        "merge_cost": {"overhead_s": 1e-5, "rate_Bps": 1e9},
        "data_loader": {"time_s_per_sample": 0.001, "workers": 8},
        "reference_global_batch": 8,
    },
    "collective": {
        "algorithm": "ring",
        "protocol": "Simple",
        "channels": 2,
        "chunk_bytes": 64,
        "chunking": "plain",
        "nccl_version": "2.27.5",
        "min_channels": 1,
        "max_channels": 64,
        "nvls": True,
        "intra_node_algorithm": "ring",
        "inter_node_algorithm": "ring",
    },
    "imperfections": {
        "slow_ranks": [{"rank": 1, "time_factor": 1.5}],
        "slow_nodes": [{"node": 0, "time_factor": 1.25}],
        "slow_nics": [{"node": 0, "nic": 0, "rate_factor": 0.5}],
        "jitter": {"relative_sd": 0.03, "seed": 7},
        "straggler": {"rank": 0, "time_factor": 3.0, "every_steps": 10},
    },
    "interference": {"computation_factor": 1.25, "communication_factor": 1.5},
    "vary": {"training.accumulation_steps": [1, 2]},
    "cases": [{"name": "as it is", "set": {"training.sync": "ddp"}}],
    "constraints": ["training.accumulation_steps < 2 or cluster.gpus == 2"],
}
SCENARIO_BASED = {
    "format": "stepcast.scenario/1",
    "base": "scenario.json",
    "vary": {"model": {"glob": "trac?.json"}},
}

SCENARIO_NCCL = {
    **SCENARIO_SMALL,
    "cluster": {"gpus": 2, "gpus_per_node": 2, "placement": "packed"},
    "collective": {
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
        "NCCL_BUFFSIZE": 64,
        "NCCL_MIN_NCHANNELS": 1,
        "NCCL_MAX_NCHANNELS": 64,
        "NCCL_NVLS_ENABLE": 0,
    },
}

SPAN = {"name": "layer", "gap_s": 0.001, "duration_s": 0.01, "host_s": 0.008, "host_waits": True}
TRACE_SMALL = {
    "format": "stepcast.trace/1",
    "name": "small",
    "source": "tests/schemas_test.py",
    "gpu": "example GPU",
    "precision": "fp32",
    "parameters": [{"name": "w", "elements": 100, "dtype": "float32"}],
    "optimizer": {"name": "SGD", "state_bytes_per_element": 0},
    "measured": [
        {
            "micro_batch": 4,
            "steps": 10,
            "step_time_s": {"median": 1.0, "min": 0, "max": 3600},
            "forward": [],
            "backward": [{"name": "all", "duration_s": 0.02, "gradients": ["w"]}],
            "optimizer": [],
        }
    ],
}
TRACE_FULL = {
    **TRACE_SMALL,
    "versions": {"pytorch": "2.4.0"},
    "parameters": [
        {"name": "w", "elements": 100, "dtype": "float32"},
        {"name": "b", "elements": 10, "dtype": "float16"},
    ],
    "buffers": [{"elements": 20, "dtype": "float32"}, {"elements": 1, "dtype": "int64"}],
    "batch_norms": [{"span": "layer", "channels": 64}],
    "optimizer": {"name": "Adam", "state_bytes_per_element": 8, "master_weights": True},
    "modelled": True,
    "in_ddp": True,
    "host_per_kernel_s": 1e-5,
    "measured": [
        {
            **TRACE_SMALL["measured"][0],
            "forward": [SPAN],
            "backward": [{**SPAN, "gradients": ["b", "w"]}, {"name": "input", "duration_s": 0.01}],
            "finalize": [SPAN],
            "optimizer": [SPAN],
            "activation_bytes": 1000,
        }
    ],
}

LINK = {"bandwidth_Bps": 1e9, "alpha_s": 1e-6}
LATE_LINK = {**LINK, "latency_s": 1e-6}
PLATFORM_SMALL = {
    "format": "stepcast.platform/1",
    "name": "example",
    "source": "tests/schemas_test.py",
    "gpu": {"name": "example GPU"},
    "node": {"gpus": 2, "interconnect": {"kind": "switch", **LINK}, "nics": {"count": 2, **LINK}},
    "fabric": {"kind": "switch"},
    "nodes": 2,
}
PRICE = {"price_per_hour_usd": 10, "price_source": "a list of prices", "price_date": "2025-06"}
PLATFORM_FULL = {
    **PLATFORM_SMALL,
    "gpu": {
        "name": "example GPU",
        "memory_bytes": 1000000,
        "multiprocessors": 80,
        "memory_bandwidth_Bps": 1e12,
        "kernel_floor_s": 1e-6,
        "source": "data sheet",
    },
    "node": {
        "gpus": 2,
        **PRICE,
        "interconnect": {
            "kind": "nvlink_mesh",
            **LINK,
            "source": "data sheet",
            "links": [{"gpus": [0, 1], "count": 2}],
        },
        "nics": {"count": 2, **LINK, "near_gpus": [[0], [1]], "source": "data sheet"},
    },
    "fabric": {"kind": "switch", "node_pair_bandwidth_Bps": 2e9, "source": "data sheet"},
}
SWITCH_FULL = {"nvlinks": 2, "nvlink_sharp": True, "source": "data sheet"}
NVIDIA = {
    **PLATFORM_SMALL,
    "gpu": {"name": "example GPU", "compute_capability": 9.0},
    "node": {
        "gpus": 2,
        "cpu": "amd",
        "interconnect": {"kind": "switch", **LATE_LINK, **SWITCH_FULL},
        "nics": {"count": 2, **LATE_LINK},
    },
    "fabric": {
        "kind": "fat_tree",
        "levels": [{"nodes_per_group": 1, "oversubscription": 2, "uplinks": 2}],
        "load_balancing": "ecmp",
        "ecmp_seed": 1,
        "node_pair_bandwidth_Bps": 1e9,
        "source": "data sheet",
    },
}
PCIE = {
    **PLATFORM_SMALL,
    "node": {
        "gpus": 2,
        "interconnect": {
            "kind": "pcie_tree",
            **LATE_LINK,
            "switches": [[0], [1]],
            "uplink_Bps": 1e9,
            "sockets": [[0], [1]],
            "socket_link_Bps": 1e9,
            "peer_to_peer": False,
            "host_memory_Bps": 1e9,
            "source": "data sheet",
        },
        "nics": {"count": 2, **LINK},
    },
    "fabric": {
        "kind": "rail",
        "nodes_per_group": 1,
        "oversubscription": 2,
        "uplinks": 2,
        "load_balancing": "ecmp",
        "ecmp_seed": 1,
        "node_pair_bandwidth_Bps": 1e9,
        "source": "data sheet",
    },
}
ONE_GPU_NODES = {**PLATFORM_SMALL, "node": {"gpus": 1, "nics": {"count": 1, **LINK}}}
ONE_NODE = {
    **{key: value for key, value in PLATFORM_SMALL.items() if key != "fabric"},
    "node": {"gpus": 2, "interconnect": {"kind": "switch", **LINK, "source": "data sheet"}},
    "nodes": 1,
}


def protocol(name: str, **others: Any) -> dict[str, Any]:
    return {
        "name": name,
        "efficiency": {"value": 1, **others},
        "launch_s": {"value": 1e-5, **others},
        "alpha_intra_node_s": {"value": 1e-6, **others},
        "alpha_inter_node_s": {"value": 1e-6, **others},
        "latency_intra_node_s": {"value": 1e-6, **others},
        "latency_inter_node_s": {"value": 1e-6, **others},
        "range": {"bytes": [0, 1 << 50], "ranks": [0, 1 << 20], "nodes": [0, 1 << 20]},
        "residuals": {"samples": 3, "median_abs": 0.01, "max_abs": 0.02},
    }


CALIBRATION_SMALL = {
    "format": "stepcast.calibration/1",
    "name": "example",
    "source": "tests/schemas_test.py",
    "platform": "example",
    "links": {},
    "protocols": [protocol("Simple")],
}
CALIBRATION_FULL = {
    **CALIBRATION_SMALL,
    "date": "2024-05-17",
    "command": "all_reduce_perf",
    "versions": {"nccl": "2.21.5"},
    "links": {
        "intra_node_Bps": {"value": 1e9, "nominal": 1e9, "stderr": 1e6, "source": "fit"},
        "inter_node_Bps": {"value": 1e9, "nominal": 1e9, "stderr": 1e6, "source": "fit"},
    },
    "protocols": [
        protocol("Simple", stderr=1e-7, source="fit"),
        protocol("LL"),
        {key: value for key, value in protocol("LL128").items() if key != "range"},
    ],
    "samples": [
        {
            "operation": "all_reduce",
            "nodes": 1,
            "ranks": 1 << 20,
            "bytes": 4096,
            "time_s": 1e-5,
            "source": "log",
        }
    ],
}
CASE = {
    "operation": "all_gather",
    "ranks": 2,
    "bytes": 1024,
    "algorithm": "ring",
    "protocol": "LL",
    "channels": 2,
    "buffer_bytes": 4096,
    "single_shot": True,
}
SPREAD = {"time_s": 1e-5, "min_s": 1e-5, "p90_s": 1e-5, "calls": 20}
# All keys that kernels have, of which one kernel has a few.
KERNEL = {
    "kernel": "gemm",
    "dtype": "float32",
    "m": 8,
    "n": 8,
    "k": 8,
    "bytes": 64,
    "cold_cache": True,
    "layout": "NHWC",
    "batch": 32,
    "in_channels": 64,
    "height": 56,
    "width": 56,
    "out_channels": 64,
    "filter_size": 3,
    "stride": 1,
    "padding": 1,
    "heads": 16,
    "sequence_length": 1024,
    "head_size": 64,
}
CALIBRATION_MEASURED = {
    **{key: CALIBRATION_SMALL[key] for key in ("format", "name", "source", "platform")},
    "machine": PLATFORM_SMALL,
    "samples": [
        {**CASE, **SPREAD, "nodes": 2, "correct": True, "own_estimate_s": 1e-5, "source": "log"}
    ],
    "curves": [
        {
            "operation": "all_reduce",
            "nodes": 1,
            "ranks": 2,
            "algorithm": "ring",
            "protocol": "LL",
            "regimes": [
                {
                    "bytes": [8, 1024],
                    "overhead_s": {"value": 1e-5, "stderr": 1e-7},
                    "rate_Bps": {"value": 1e9, "stderr": 1e7},
                }
            ],
            "residuals": {"samples": 8, "median_abs": 0.01, "max_abs": 0.1, "held_out_median_abs": 0.02},
            "outliers_bytes": [64],
        }
    ],
    "compute": [{**KERNEL, **SPREAD, "correct": True}],
    "interference": [
        {
            "compute": KERNEL,
            "collective": CASE,
            "compute_alone_s": 1e-3,
            "compute_beside_s": 1.1e-3,
            "collective_alone_s": 1e-3,
            "collective_beside_s": 1.2e-3,
        }
    ],
    "skipped": [{"case": "a convolution", "reason": "libcudnn.so.9: cannot open shared object file"}],
    "warnings": ["the GPU was used by others"],
}

DOCUMENTS: dict[str, dict[str, Any]] = {
    "scenario": {
        "small": SCENARIO_SMALL,
        "full": SCENARIO_FULL,
        "NCCL's names": SCENARIO_NCCL,
        "based on another": SCENARIO_BASED,
    },
    "trace": {"small": TRACE_SMALL, "full": TRACE_FULL},
    "platform": {
        "small": PLATFORM_SMALL,
        "one GPU in a node": ONE_GPU_NODES,
        "one node": ONE_NODE,
        "full": PLATFORM_FULL,
        "NVIDIA's": NVIDIA,
        "PCIe": PCIE,
    },
    "calibration": {
        "small": CALIBRATION_SMALL,
        "full": CALIBRATION_FULL,
        "measured": CALIBRATION_MEASURED,
    },
}

# ---- where schema and program may differ ---------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A refusal that compares two places or two files: few of them can be said in a schema, and the
    line may name the other place."""

    format: str
    changed: str  # pattern of the pointer that was changed
    line: str  # pattern of the line after "stepcast: "; FILE is the changed file
    in_schema: bool = False


RULES = [
    Rule("scenario", "/training/micro_batch", r"FILE:/training/micro_batch: .* was measured at \(4\), got"),
    Rule("scenario", "/cluster/gpus", r"FILE:/cluster/gpus: .* \[1, 4\] \(2 nodes of 2 GPUs in "),
    Rule("scenario", "/collective/algorithm", "FILE:/collective/algorithm: nvls.* needs switches"),
    Rule("scenario", "/collective/chunking", "FILE:/collective/chunking: NCCL's chunks need"),
    Rule("scenario", "/cluster/gpus_per_node", "FILE:/cluster/gpus_per_node: "),
    Rule("scenario", "/imperfections/straggler/rank", r"FILE:/imperfections/straggler/rank: there "),
    Rule("scenario", r"/imperfections/slow_ranks/.*", r"FILE:/imperfections/slow_ranks/\d+/rank: there are "),
    Rule("scenario", r"/imperfections/slow_nodes/.*", r"FILE:/imperfections/slow_nodes/\d+/node: "),
    Rule("scenario", r"/imperfections/slow_nics/.*", r"FILE:/imperfections/slow_nics/\d+: "),
    Rule("scenario", "/cases/0/set", 'FILE:/cases/0/set/unknown: unknown key "unknown"'),
    Rule("scenario", "/cases", "FILE:/cases/1/name: .* stands twice"),
    Rule("trace", "/parameters", "FILE:/parameters/1/name: .* stands twice"),
    Rule("trace", "/measured", "FILE:/measured/1/micro_batch: micro-batches must rise"),
    Rule("trace", "/measured/0/step_time_s/(min|max)", "FILE:/measured/0/step_time_s/median: "),
    Rule("trace", "/measured/0/backward.*", "FILE:/measured/0/backward: .* in exactly one span"),
    Rule("trace", "/batch_norms.*|/measured.*", "FILE:/batch_norms/0/span: must be the name of one"),
    Rule("trace", "/measured/0/backward.*", "FILE:/measured/0: its spans take no time at all"),
    Rule("platform", "/node/gpus", "FILE:/node/interconnect: a node with one GPU", True),
    Rule("platform", "/node/nics/near_gpus", "FILE:/node/nics/near_gpus: must hold one list for"),
    Rule("platform", "/node/nics/near_gpus/0/0", r"FILE:/node/nics/near_gpus/0/0: .* \[0, 1\]"),
    Rule("platform", "/node/interconnect/links", "FILE:.*/links/1/gpus: .* listed twice"),
    Rule("platform", "/node/interconnect/links", "scenario.json:/cluster/gpus: no ring joins"),
    Rule("platform", "/node/interconnect/links/0/gpus/.", r"FILE:.*/links/0/gpus/.: .* \[0, 1\]"),
    Rule("platform", "/node/interconnect/links/0/gpus/.", "FILE:.*/gpus: joins GPU . to", True),
    Rule("platform", "/fabric/.*nodes_per_group", r"FILE:/fabric/.*nodes_per_group: .* \[1, 2\]"),
    Rule("platform", "/node/interconnect", 'FILE:/node/interconnect: the key "(socket_link|host_memory)_Bps" is'),
    Rule("platform", "/node/interconnect/(switches|sockets).*", "FILE:.*: (GPU|switch) . is (missing|listed)"),
    Rule("platform", "/node/interconnect/(switches|sockets).*", r"FILE:.*: .* \[0, 1\]"),
    Rule("calibration", "/machine.*", "FILE:/machine"),
    Rule("calibration", "/protocols", "FILE:/protocols/1/name: .* stands twice"),
]

# ---- damage --------------------------------------------------------------------------------------

Steps = tuple[str | int, ...]  # keys and places in lists, from the root to a value


@dataclass(frozen=True)
class Place:
    """A value in a document and its schema."""

    steps: Steps
    schema: dict[str, Any]
    value: Any

    @property
    def pointer(self) -> str:
        return "".join(f"/{step}" for step in self.steps)


def places(name: str, schema: Any, value: Any, steps: Steps = ()) -> Iterator[Place]:
    """Every value of a document. Entries of a list are alike: the first one, and all of a pair."""
    schema = make_formats.resolved(schema, SCHEMAS[name])
    for branch in make_formats.alternatives(schema, SCHEMAS[name]) if "oneOf" in schema else []:
        if branch["properties"]["kind"]["const"] == value["kind"]:
            schema = branch
    for branch in schema.get("anyOf", []):
        if isinstance(value, dict) and "properties" in branch:
            schema = {**schema, **branch}
    yield Place(steps, schema, value)
    if not set(schema) - {"description"}:
        return  # anything goes
    if isinstance(value, dict):
        for key, member in value.items():
            below = schema.get("properties", {}).get(key) or schema["additionalProperties"]
            yield from places(name, below, member, (*steps, key))
    elif isinstance(value, list) and "items" in schema:
        for index in range(len(value) if "maxItems" in schema else min(1, len(value))):
            yield from places(name, schema["items"], value[index], (*steps, index))


def changed(document: Any, steps: Steps, value: Any) -> Any:
    """A copy with another value at a place."""
    if not steps:
        return value
    other = dict(document) if isinstance(document, dict) else list(document)
    other[steps[0]] = changed(document[steps[0]], steps[1:], value)
    return other


def without(table: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


def types_of(schema: dict[str, Any]) -> list[str]:
    types = schema.get("type", [])
    return [types] if isinstance(types, str) else types


def other_values(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values of every type, words and ends of ranges; whether they are right is not asked here."""
    choices = [schema, *schema.get("anyOf", [])]
    for value in (None, True, 1, "8", [], {}):
        if not (isinstance(value, str) and "string" in types_of(schema)):  # as good as any text
            yield f"is {json.dumps(value)}", value
    for choice in choices:
        for word in choice.get("enum", [choice["const"]] if "const" in choice else []):
            for text in (word, word.swapcase(), f"{word}0"):
                yield f"is {json.dumps(text)}", text
        is_whole = "integer" in types_of(choice)
        for bound, outward in (("minimum", -1), ("maximum", 1)):
            if bound in choice:
                limit = choice[bound]
                next_float = math.nextafter(limit, outward * math.inf)
                yield f"is at its {bound}", limit
                yield f"is just beyond its {bound}", limit + outward if is_whole else next_float
        if "minimum" in choice:
            yield "has a fraction", choice["minimum"] + 0.5
            yield "is whole and written as a float", float(choice["minimum"] + 1)
            yield "is negative", -1
            yield "is huge", 1e300


@dataclass(frozen=True)
class Case:
    what: str
    pointer: str  # what was changed, or the object that lacks a key or has an unknown one
    key: str  # that key
    document: Any
    known: frozenset[str] = frozenset()  # the words that the refusal must list, if it lists any


def cases(name: str, document: Any) -> Iterator[Case]:
    """A document with one thing changed, in all ways that could matter."""
    for place in places(name, SCHEMAS[name], document):
        words = frozenset(place.schema.get("enum", ())) - {"auto"}
        properties = frozenset(place.schema.get("properties", ()))

        def case(what: str, value: Any, key: str = "", known: frozenset[str] = frozenset()) -> Case:
            what = f"{place.pointer or 'the document'} {what}"
            return Case(what, place.pointer, key, changed(document, place.steps, value), known)

        if set(place.schema) - {"description"}:  # else anything goes
            for what, value in other_values(place.schema):
                yield case(what, value, known=words)
        if isinstance(place.value, dict):
            yield case("has an unknown key", {**place.value, "unknown": 1}, "unknown", properties)
            for key in place.value:
                yield case(f"lacks {key}", without(place.value, key), key)
        elif isinstance(place.value, list) and place.value:
            yield case("repeats its last entry", [*place.value, place.value[-1]])
            yield case("lacks its last entry", place.value[:-1])


def all_cases(name: str) -> list[Case]:
    by_name: dict[str, Case] = {}
    for document in DOCUMENTS[name].values():
        for case in cases(name, document):
            by_name.setdefault(case.what, case)
    if name == "scenario":
        for key in ("", "training..sync", "training."):
            damaged = {**SCENARIO_SMALL, "vary": {key: [1]}}
            by_name[f"/vary has {key}"] = Case(f"/vary has {key}", "/vary", "", damaged)
    return list(by_name.values())


# ---- the program ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    error: str

    @property
    def refusal(self) -> str | None:
        """The line after "stepcast: ", if this is a refusal as it should be."""
        line = self.error.removesuffix("\n").removeprefix("stepcast: ")
        whole = self.error == f"stepcast: {line}\n" and "\n" not in line
        return line if self.code == 2 and not self.out and whole else None


def stepcast(*words: str, cwd: Path = ROOT) -> Answer:
    done = subprocess.run([STEPCAST, *words], cwd=cwd, capture_output=True, text=True, timeout=60)
    return Answer(done.returncode, done.stdout, done.stderr)


def write(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder where scenario.json runs."""
    for name in INPUT_FORMATS:
        write(tmp_path / f"{name}.json", DOCUMENTS[name]["full"])
    write(tmp_path / "scenario.json", SCENARIO_SMALL)
    return tmp_path


def run_with(folder: Path, name: str, file: str, *options: str) -> Answer:
    """Runs scenario.json with one of its files exchanged, or another scenario."""
    key = {"trace": "model"}.get(name, name)
    words = [file] if name == "scenario" else ["scenario.json", "--set", f"{key}={file}"]
    return stepcast("run", *words, "--engine", "analytic", "--jobs", "1", *options, cwd=folder)


def objection(name: str, case: Case, file: str, answer: Answer, used: set[Any]) -> str | None:
    """What is wrong with the program's answer to a damaged document."""
    problem = next((error.message for error in VALIDATORS[name].iter_errors(case.document)), None)
    # Read and understood, only not for this engine.
    not_exact = answer.code == 1 and "the analytic engine cannot answer: " in answer.error
    if answer.code == 0 or not_exact:
        return problem and f"the program accepts what the schema refuses: {problem}"

    line = answer.refusal
    if line is None:
        return f"code 2, one line on stderr and nothing on stdout are wanted, got {answer}"
    for rule in RULES:
        pattern = rule.line.replace("FILE", re.escape(file))
        concerned = (rule.format, rule.in_schema) == (name, problem is not None)
        if concerned and re.fullmatch(rule.changed, case.pointer) and re.match(pattern, line):
            used.add(rule)
            return None
    if not problem:
        return f"the schema accepts what the program refuses: {line}"
    where, _, reason = line.partition(": ")
    path, _, pointer = where.partition(":")
    _, lists_words, words = reason.partition(" known: ")
    if case.known and lists_words and set(words.split(", ")) != case.known:
        return f"the schema knows {sorted(case.known)}: {line}"
    if path == file and case.key and pointer == case.pointer and f'"{case.key}"' in reason:
        return None
    if path == file and f"{pointer}/".startswith(f"{case.pointer}/"):
        return None
    return f"the line does not name {file} and the place: {line}"


# ---- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_schema_is_one(name: str) -> None:
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"] == schema["properties"]["format"]["const"] == f"stepcast.{name}/1"


@pytest.mark.parametrize("name", FORMATS)
def test_every_key_has_a_meaning_and_every_figure_its_unit(name: str) -> None:
    units = {"per_rank": "B", "per_s": "samples/s", "bytes": "B", "Bps": "B/s", "s": "s"}
    for key in make_formats.keys(SCHEMAS[name]):
        assert key.meaning, f"{key.path} has no description"
        leaf = make_formats.innermost(key.schema)
        types = {kind for choice in [leaf, *leaf.get("anyOf", [])] for kind in types_of(choice)}
        if not types & {"integer", "number"} or key.path.endswith(
            (".gpus", ".near_gpus", ".switches", ".sockets", ".NCCL_NVLS_ENABLE", ".rank", ".node", ".nic", ".seed")
        ):
            continue  # places of GPUs, switches and others, a flag and a seed
        assert key.unit, f"{key.path} has no unit"
        for suffix, unit in units.items():
            if key.path.endswith(f"_{suffix}"):
                assert key.unit == unit, key.path
                break


def shipped_files() -> list[str]:
    folders = (ROOT / name for name in ("models", "platforms", "scenarios"))
    return sorted(str(path.relative_to(ROOT)) for one in folders for path in one.rglob("*.json"))


@pytest.mark.parametrize("path", shipped_files())
def test_shipped_file_is_valid(path: str) -> None:
    validate(json.loads((ROOT / path).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_no_key_of_a_schema_escapes_the_damage(name: str) -> None:
    reached = {
        re.sub(r"/\d+", "[]", place.pointer).replace("/", ".").removeprefix(".")
        for document in DOCUMENTS[name].values()
        for place in places(name, SCHEMAS[name], document)
    }
    for key in make_formats.keys(SCHEMAS[name]):
        pattern = re.escape(key.path).replace(r"\*", ".+")
        assert any(re.fullmatch(pattern, path) for path in reached), key.path


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_program_and_schema_accept_the_same(name: str, folder: Path) -> None:
    for variant, document in DOCUMENTS[name].items():
        write(folder / "valid.json", document)
        validate(document)
        answer = run_with(folder, name, "valid.json")
        assert answer.code == 0, f"the {variant} {name} is refused: {answer}"

    todo = all_cases(name)

    def run(index: int) -> Answer:
        write(folder / f"case{index}.json", todo[index].document)
        return run_with(folder, name, f"case{index}.json")

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(run, range(len(todo))))
    used: set[Any] = set()
    wrong = []
    for index, (case, answer) in enumerate(zip(todo, answers)):
        if text := objection(name, case, f"case{index}.json", answer, used):
            wrong.append(f"{case.what}: {text}")
    assert not wrong, f"{len(wrong)} of {len(todo)} cases:\n" + "\n".join(wrong)

    exceptions = [rule for rule in RULES if rule.format == name]
    unmet = [entry for entry in exceptions if entry not in used]
    assert not unmet, f"nothing meets these exceptions any more, so remove them: {unmet}"


@pytest.mark.parametrize("name", INPUT_FORMATS)
def test_a_key_left_out_is_its_default(name: str, folder: Path) -> None:
    document = DOCUMENTS[name]["full"]

    def figures(whole: Any, sync: str) -> Any:
        write(folder / "case.json", whole)
        answer = run_with(folder, name, "case.json", "--set", f"training.sync={sync}", "-o", "-")
        if answer.code != 0:
            return answer.error
        result = json.loads(answer.out)
        return result["scenario"], result["points"]

    for place in places(name, SCHEMAS[name], document):
        if "default" not in place.schema:
            continue
        *above, key = place.steps
        holder = document
        for step in above:
            holder = holder[step]
        left_out = changed(document, tuple(above), without(holder, key))
        written_out = changed(document, place.steps, place.schema["default"])
        for sync in ("ddp", "flat"):
            if key != "sync":
                assert figures(left_out, sync) == figures(written_out, sync), place.pointer


def test_default_of_sync(folder: Path) -> None:
    default = SCHEMAS["scenario"]["properties"]["training"]["properties"]["sync"]["default"]
    result = json.loads(stepcast("run", "scenario.json", "-o", "-", cwd=folder).out)
    assert result["scenario"]["training"]["sync"] == default


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ('"question"', '"model": "trace.json", "question"', "s.json:/model: this key stands twice"),
        ('"gpus": 2', '"gpus": 2, "gpus": 2', "s.json:/cluster/gpus: this key stands twice"),
        ('"gpus": 2', '"gpus": NaN', "s.json: not valid JSON: "),
        ('"gpus": 2', '"gpus": 1e999', "s.json: not valid JSON: "),
        ('"gpus": 2', '"gpus": 2,', "s.json: not valid JSON: "),
        ('"gpus": 2', '"gpus": 2 // two', "s.json: not valid JSON: "),
        ('"gpus": 2', '"gpus": 18446744073709551616', "s.json:/cluster/gpus: must be a whole num"),
        ("Does it", "Does\nit", "s.json: not valid JSON: "),
    ],
)
def test_text_is_refused(right: str, wrong: str, line: str, folder: Path) -> None:
    text = json.dumps(SCENARIO_SMALL)
    assert right in text
    (folder / "s.json").write_text(text.replace(right, wrong), encoding="utf-8")
    answer = stepcast("run", "s.json", cwd=folder)
    assert answer.refusal is not None and answer.refusal.startswith(line), answer


RUNS = {
    "quickstart": ["scenarios/quickstart.json"],
    "one GPU": ["scenarios/quickstart.json", "--set", "cluster.gpus=1"],
    "not calibrated": ["scenarios/quickstart.json", "--set", "calibration=null"],
    "one AllReduce a parameter": [
        *("scenarios/quickstart.json", "--set", "vary.cluster.gpus=[1,16]"),
        *("--set", "training.sync=per_tensor", "--set", "collective.chunk_bytes=max"),
    ],
    "accumulation": [
        *("scenarios/quickstart.json", "--set", "vary.training.accumulation_steps=[1,4]"),
        *("--set", "training.accumulation=sync_every_micro_step"),
    ],
}


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_result_is_valid(words: list[str]) -> None:
    result = json.loads(stepcast("run", *words, "-o", "-").out)
    validate(result)
    validate(result["scenario"])
    for file in result["inputs"].values():
        if file is not None:
            validate(file["document"])


@pytest.mark.parametrize("engine", ["simgrid", "analytic"])
def test_results_of_the_small_documents_are_valid(engine: str, folder: Path) -> None:
    write(folder / "full.json", SCENARIO_FULL)
    for file in ("scenario.json", "full.json"):
        answer = stepcast("run", file, "--engine", engine, "-o", "-", cwd=folder)
        validate(json.loads(answer.out))


@pytest.mark.parametrize("calibrated", [False, True])
def test_collective_is_valid(calibrated: bool) -> None:
    words = ["--platform", "platforms/abci_v100.json", "--gpus", "8", "--bytes", "0,1KiB,64MiB"]
    words += ["--calibration", "platforms/abci_v100.calibration.json"] if calibrated else []
    validate(json.loads(stepcast("collective", *words, "--json", "-").out))


def test_schemas_know_what_is_registered() -> None:
    scenario, platform = SCHEMAS["scenario"], SCHEMAS["platform"]
    listed = stepcast("list", "algorithms").out.splitlines()[1:]
    algorithm = scenario["properties"]["collective"]["properties"]["algorithm"]
    listed = listed[: listed.index("")]  # what follows is not of AllReduce
    assert {"auto", *(line.split()[0] for line in listed)} == set(algorithm["enum"])
    interconnect = platform["properties"]["node"]["properties"]["interconnect"]
    kinds = [choice["$ref"].removeprefix("#/$defs/") for choice in interconnect["oneOf"]]
    assert sorted(kinds) == sorted(stepcast("list", "topologies").out.split())


# ---- docs/formats.md -----------------------------------------------------------------------------


@pytest.mark.parametrize("page", make_formats.PAGES)
def test_tables_are_up_to_date(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    fresh = make_formats.with_tables(text, make_formats.PAGES[page])
    assert text == fresh, "run docs/make_formats.py"


def test_examples_of_the_page_run_as_it_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/formats.md").read_text(encoding="utf-8")
    examples = re.findall(r"`(\w+\.json)`:\n\n```json\n(.*?)```", page, re.DOTALL)
    names = [name for name, _ in examples]
    assert names == ["scenario.json", "model.json", "platform.json", "calibration.json"]
    for name, text in examples:
        validate(json.loads(text))
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert stepcast("run", "scenario.json", cwd=tmp_path).code == 0

    (mesh,) = re.findall(r"```json\n(\{\n  \"kind\": .*?)```", page, re.DOTALL)
    words = ["run", "scenario.json", "--set", f"platform.node.interconnect={mesh}"]
    assert stepcast(*words, cwd=tmp_path).code == 0

    commands = [
        command.split("\n", 1)
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        for command in block.removeprefix("$ ").split("\n$ ")
    ]
    assert commands
    for command, output in commands:
        answer = stepcast(*shlex.split(command)[1:], cwd=tmp_path)
        assert (answer.out + answer.error).strip() == output.strip(), command
