#!/usr/bin/env python3
r"""Makes models/resnet50_v100_fp32.json, a step trace of ResNet-50, from a profiler trace.

    python3 models/make_resnet50_v100_fp32.py TRACE.json.gz MODELS.json \
        > models/resnet50_v100_fp32.json

TRACE   the trace that SOURCE names: DistributedDataParallel (DDP) with one rank on one V100, so
        DDP's own copies are in it, but no collective disturbs the computation.
MODELS  names, shapes and multiply-accumulates per sample of torchvision's ResNet-50.

How GPU time is given to layers. The GPU lags the host by most of a step, so time stamps cannot be
compared across the two. Each GPU activity names the runtime call that launched it (correlation),
and the outermost operator around that call names its cause. Parameters come from MODELS in
registration order, which for ResNet-50 is also the order of execution (a downsample branch runs
after its block's bn3); backward visits the layers in reverse. Operators carry no shapes, so each
part of this mapping is checked against something that does depend on sizes: launch grids, bytes
copied, elements reduced. Any doubt ends the script.
"""

import gzip
import json
import math
import sys
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median

TRACE_ID = "094DFF9CD7781F8ADDEAFBA6A8855CA7"  # ties SOURCE to the file it speaks of
SOURCE = (
    "facebookresearch/HolisticTraceAnalysis @f4d0062c382f42bd8a74838bcdad1916c7d5d2da, "
    "tests/data/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz (DDP, one rank): "
    "median of each span over profiler steps 102-105 (101 is dropped, its host is still catching "
    "up), by models/make_resnet50_v100_fp32.py. Parameter names and shapes are those of "
    "torchvision's resnet50; the micro-batch follows from the launch grids of all 49 ReLU kernels, "
    "which fit 32 samples of 224 x 224."
)

BYTES_PER_ELEMENT = 4  # fp32
# PyTorch's vectorised element-wise kernels: 128 threads of 4 elements (aten/src/ATen/native/cuda).
ELEMENTS_PER_BLOCK = 512
# DDP's limits once its buckets are rebuilt (torch/csrc/distributed/c10d/reducer.hpp); the last
# one repeats.
BUCKET_LIMITS_BYTES = [1 << 20, 25 << 20]
STEADY = 0.01  # a step is within this fraction of the median step, unless something stalled it
MEDIANS_ADD_UP = 0.001  # largest difference allowed between the sum of medians and the median sum

EVALUATE = "autograd::engine::evaluate_function: "
ACCUMULATE = EVALUATE + "torch::autograd::AccumulateGrad"
COPY_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
# The one operator that each span of a layer must hold and no other span may.
LAYER_OP = {
    ("forward", "conv"): "aten::conv2d",
    ("forward", "bn"): "aten::batch_norm",
    ("forward", "fc"): "aten::linear",
    ("backward", "conv"): EVALUATE + "ConvolutionBackward0",
    ("backward", "bn"): EVALUATE + "CudnnBatchNormBackward0",
    ("backward", "fc"): EVALUATE + "AddmmBackward0",
}
# buffer = momentum * buffer; buffer += gradient; parameter -= rate * buffer.
# Weight decay would be one more.
SGD_WITH_MOMENTUM = ["aten::_foreach_mul_", "aten::_foreach_add_", "aten::_foreach_add_"]
# Operators that open a span of their own, in the order of a step.
OPENS = {
    "aten::cross_entropy_loss": ("forward", "loss"),
    "aten::ones_like": ("backward", "loss"),  # gradient of the loss with respect to itself
    SGD_WITH_MOMENTUM[0]: ("optimizer", "SGD.step"),
}


def fail(message):
    sys.exit(f"make_resnet50_v100_fp32: {message}")


def check(holds, message):
    if not holds:
        fail(message)


# ------------------------------------------------------------------------------------------ model


@dataclass
class Layer:
    name: str
    kind: str  # "conv", "bn" or "fc"
    parameters: list = field(default_factory=list)  # (name, elements), registration order
    outputs_per_sample: int = 0

    def gradients(self):
        """Parameters in the order in which autograd accumulates their gradients.

        A batch norm's node has the edges (input, weight, bias), addmm's (bias, input, transposed
        weight). AccumulateGrad nodes run before all others, equals in the order of the edges
        (torch/csrc/autograd/engine.h). The trace cannot tell the two gradients of a batch norm
        apart, for they have one size.
        """
        return self.parameters[::-1] if self.kind == "fc" else self.parameters


def read_layers(models):
    layers = []
    for tensor in models["resnet50"]["tensors"]:
        if not layers or layers[-1].name != tensor["layer"]:
            kind = {4: "conv", 2: "fc", 1: "bn"}[len(tensor["shape"])]
            layers.append(Layer(tensor["layer"], kind))
        layer = layers[-1]
        layer.parameters.append((tensor["name"], tensor["numel"]))
        if layer.kind == "conv":
            positions = tensor["fwd_macs"] // tensor["numel"]  # each uses each weight once
            layer.outputs_per_sample = tensor["shape"][0] * positions
        elif layer.kind == "bn":
            layer.outputs_per_sample = layers[-2].outputs_per_sample
    return layers


def buckets_of(elements):
    """DDP's rule: append, and close the bucket once it has reached the current limit."""
    buckets = [[]]
    for count in elements:
        buckets[-1].append(count)
        limit = BUCKET_LIMITS_BYTES[min(len(buckets), len(BUCKET_LIMITS_BYTES)) - 1]
        if sum(buckets[-1]) * BYTES_PER_ELEMENT >= limit:
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


# ------------------------------------------------------------------------------------------ trace


@dataclass
class Event:
    name: str
    thread: int
    start: int  # ns, whole: a double cannot hold nanoseconds since 1970
    end: int
    args: dict


@dataclass
class Op(Event):
    activities: list = field(default_factory=list)  # what it made the GPU do, in stream order


def read_events(trace):
    """Complete events by category, in order of start, an outer one before an inner one."""
    events = defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "X":
            start = int(Decimal(e["ts"]) * 1000)
            end = start + int(Decimal(e["dur"]) * 1000)
            make = Op if e["cat"] == "cpu_op" else Event
            events[e["cat"]].append(make(e["name"], e["tid"], start, end, e.get("args", {})))
    for of_category in events.values():
        of_category.sort(key=lambda e: (e.start, -e.end))
    return events


def outermost(ops):
    """Operators that no other operator of their thread contains."""
    kept, end = [], {}
    for op in ops:
        if op.start >= end.get(op.thread, 0):
            kept.append(op)
            end[op.thread] = op.end
    return kept


def in_sequence(activities):
    return all(a.end <= b.start for a, b in zip(activities, activities[1:]))


def give_activities_to_ops(events, ops):
    activities = events["kernel"] + events["gpu_memcpy"] + events["gpu_memset"]
    activities.sort(key=lambda a: a.start)
    check({a.args["stream"] for a in activities} == {7}, "GPU work outside stream 7")
    check(in_sequence(activities), "GPU activities of one stream overlap")

    launches = {call.args["correlation"]: call for call in events["cuda_runtime"]}
    of_thread = defaultdict(list)
    for op in ops:
        of_thread[op.thread].append(op)
    starts = {thread: [op.start for op in own] for thread, own in of_thread.items()}
    for activity in activities:
        launch = launches.get(activity.args["correlation"])
        check(launch, f"no launch for {activity.name}")
        at = bisect_right(starts.get(launch.thread, []), launch.start) - 1
        op = of_thread[launch.thread][at] if at >= 0 else None
        check(op and launch.end <= op.end, f"no operator launched {activity.name}")
        op.activities.append(activity)


# ------------------------------------------------------------------------------------------ spans


@dataclass
class Span:
    phase: str
    name: str
    layer: Layer = None
    ops: list = field(default_factory=list)

    def activities(self):
        return [a for op in self.ops for a in op.activities]

    def start(self):
        return self.activities()[0].start

    def end(self):
        return self.activities()[-1].end


def split_into_spans(ops, layers):
    """Cuts one step's operators, in host order, into spans.

    Whatever follows a convolution (counter of batches, batch norm, ReLU, residual add, pooling)
    goes with its batch norm. In backward those operators come before the batch norm's own, so a
    span there runs from the last gradient of one layer to the last gradient of the next.
    """
    spans = [Span("forward", "ddp_broadcast_buffers")]
    ahead = iter(layers)
    behind = reversed(layers)
    awaited = 0  # gradients still to come in this backward span
    for op in ops:
        last = spans[-1]
        if op.name in OPENS:
            spans.append(Span(*OPENS[op.name]))
        elif last.phase == "forward":
            opens = op.name in (LAYER_OP["forward", "conv"], LAYER_OP["forward", "fc"])
            if opens or (last.layer and last.layer.kind == "conv"):
                layer = next(ahead, None)
                check(layer, "forward runs more layers than the model has")
                spans.append(Span("forward", layer.name, layer))
        elif last.phase == "backward" and awaited == 0:
            if op.name == LAYER_OP["backward", "fc"] or last.layer:
                if layer := next(behind, None):
                    spans.append(Span("backward", layer.name, layer))
                    awaited = len(layer.parameters)
                else:
                    spans.append(Span("finalize", "ddp_copy_bucket_to_grad"))
        awaited -= op.name == ACCUMULATE
        spans[-1].ops.append(op)

    check(next(ahead, None) is None, "forward runs fewer layers than the model has")
    check(next(behind, None) is None, "backward runs fewer layers than the model has")
    for span in spans:
        check(span.activities(), f"no GPU work in {span.phase} of {span.name}")
    check(
        in_sequence([a for span in spans for a in span.activities()]),
        "the GPU runs operators in another order than the host",
    )
    return spans


def check_operators(spans):
    """A layer's span holds that layer's operator, and backward is the twin of forward."""
    number = {}
    for span in spans:
        expected = [LAYER_OP[span.phase, span.layer.kind]] if span.layer else []
        found = [op for op in span.ops if op.name in LAYER_OP.values()]
        check(
            [op.name for op in found] == expected,
            f"{span.phase} of {span.name} does not run {expected or 'without a layer'}",
        )
        # Autograd numbers the nodes it records, and a node's backward carries its number.
        if span.layer and span.phase == "forward":
            number[span.name] = found[0].args["Sequence number"]
        elif span.layer:
            numbers = [op.args.get("Sequence number") for op in span.ops]
            check(number[span.name] in numbers, f"backward of {span.name} is another layer's")
    update = [op.name for op in spans[-1].ops if op.activities]
    check(update == SGD_WITH_MOMENTUM, f"optimizer is not SGD with momentum: {update}")


def check_gradients(spans, events):
    """The sizes in DDP's copies and collectives are those of the order claimed."""
    ready = [
        parameter
        for span in spans
        if span.phase == "backward" and span.layer
        for parameter in span.layer.gradients()
    ]
    accumulations = [op for span in spans for op in span.ops if op.name == ACCUMULATE]
    check(
        len(accumulations) == len(ready),
        f"{len(accumulations)} gradients for {len(ready)} parameters",
    )

    # Into the bucket (mul_out: gradient / world size), one kernel each.
    for op, (name, elements) in zip(accumulations, ready):
        grids = [a.args.get("grid") for a in op.activities]
        blocks = math.ceil(elements / ELEMENTS_PER_BLOCK)
        check(grids == [[blocks, 1, 1]], f"the gradient of {name} has another size")

    # Out of the bucket, one copy each.
    copies = [op for op in spans[-2].ops if op.name == COPY_BACK]
    sizes = [a.args.get("bytes") for op in copies for a in op.activities]
    expected = [elements * BYTES_PER_ELEMENT for _, elements in ready]
    check(sizes == expected, "gradients leave the buckets in another order")

    # In between, one collective a bucket, launched by the hook of the bucket's last gradient.
    reductions = [
        e
        for e in events["cpu_op"]
        if e.args.get("Collective name") == "allreduce"
        and accumulations[0].start <= e.start <= accumulations[-1].end
    ]
    check({e.args["dtype"] for e in reductions} == {"Float"}, "gradients are not fp32")
    launched = [
        (e.args["In msg nelems"], sum(op.start <= e.start for op in accumulations))
        for e in reductions
    ]
    buckets = buckets_of([elements for _, elements in ready])
    expected = [(sum(b), sum(map(len, buckets[: i + 1]))) for i, b in enumerate(buckets)]
    check(launched == expected, f"(elements, gradients so far): {launched}, not {expected}")


def read_buffers(events, layers):
    """(elements, dtype) of each broadcast of buffers: running mean and variance of each batch norm,
    and the batches that it has seen."""
    dtypes = {"Float": "float32", "Long": "int64"}
    found = []
    for e in events["cpu_op"]:
        if e.args.get("Collective name") == "broadcast":
            buffers = (e.args["In msg nelems"], dtypes[e.args["dtype"]])
            if buffers not in found:
                found.append(buffers)
    norms = [layer for layer in layers if layer.kind == "bn"]
    features = sum(layer.parameters[0][1] for layer in norms)
    expected = [(2 * features, "float32"), (len(norms), "int64")]
    check(found == expected, f"broadcasts {found} instead of {expected}")
    return found


def micro_batch(spans):
    """The number of samples with which every ReLU's grid fits its layer's output."""
    relus = [
        (op.activities[0].args["grid"][0], span.layer)
        for span in spans
        for op in span.ops
        if op.name == "aten::relu_"
    ]
    check(len(relus) == 49, f"{len(relus)} ReLUs instead of 49")
    blocks, layer = relus[0]
    batch = blocks * ELEMENTS_PER_BLOCK // layer.outputs_per_sample
    for blocks, layer in relus:
        expected = math.ceil(batch * layer.outputs_per_sample / ELEMENTS_PER_BLOCK)
        check(blocks == expected, f"the ReLU after {layer.name} does not fit batch {batch}")
    return batch


# ----------------------------------------------------------------------------------------- output


def seconds(ns):
    return f"{ns / 1e9:.10f}"


def one_line(**values):
    """A JSON object on one line; the values are JSON already."""
    return "{" + ", ".join(f'"{key}": {value}' for key, value in values.items()) + "}"


def listed(key, lines, indent):
    """A JSON member whose elements have a line each."""
    body = ",\n".join(f"{indent}  {line}" for line in lines)
    return f'{indent}"{key}": [\n{body}\n{indent}]'


def measure(runs):
    """The measured part of the output as JSON text, from the spans of all steps."""
    batches = {micro_batch(spans) for spans in runs}
    check(len(batches) == 1, f"the micro-batch changes: {batches}")

    # A step lasts from the end of the previous update to the end of its own, so the first step
    # can only serve as the start of the second.
    before, after = runs[:-1], runs[1:]
    periods = [b[-1].end() - a[-1].end() for a, b in zip(before, after)]
    period = median(periods)
    check(all(abs(p / period - 1) <= STEADY for p in periods), f"unsteady steps: {periods} ns")

    lines = {"forward": [], "backward": [], "finalize": [], "optimizer": []}
    total = 0
    for i, span in enumerate(after[0]):
        same = [run[i] for run in after]
        check(
            all((s.phase, s.name) == (span.phase, span.name) for s in same),
            "steps have different spans",
        )
        previous = [run[i - 1] for run in after] if i > 0 else [run[-1] for run in before]
        gap = median(s.start() - p.end() for s, p in zip(same, previous))
        duration = median(s.end() - s.start() for s in same)
        total += gap + duration
        line = {
            "name": json.dumps(span.name),
            "gap_s": seconds(gap),
            "duration_s": seconds(duration),
        }
        if span.phase == "backward" and span.layer:
            line["gradients"] = json.dumps([name for name, _ in span.layer.gradients()])
        lines[span.phase].append(one_line(**line))
    # Medians need not add up, but where little varies they nearly do.
    excess = total / period - 1
    check(abs(excess) <= MEDIANS_ADD_UP, f"spans add up to {total} ns, the step to {period} ns")
    print(f"spans add up to the median step {excess:+.3%}", file=sys.stderr)

    step_time = one_line(
        median=seconds(period), min=seconds(min(periods)), max=seconds(max(periods))
    )
    members = [
        f'      "micro_batch": {batches.pop()}',
        f'      "steps": {len(periods)}',
        f'      "step_time_s": {step_time}',
        *(listed(phase, of_phase, "      ") for phase, of_phase in lines.items()),
        '      "activation_bytes": null',
    ]
    return "    {\n" + ",\n".join(members) + "\n    }"


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_resnet50_v100_fp32.py TRACE.json.gz MODELS.json")
    with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
        trace = json.load(file, parse_float=Decimal)
    with open(sys.argv[2], encoding="utf-8") as file:
        layers = read_layers(json.load(file))

    check(trace.get("trace_id") == TRACE_ID, "not the trace that SOURCE names")
    check(trace["distributedInfo"]["world_size"] == 1, "more than one rank")
    parameters = [parameter for layer in layers for parameter in layer.parameters]
    check(len(dict(parameters)) == 161, f"{len(dict(parameters))} parameters instead of 161")

    events = read_events(trace)
    ops = outermost(events["cpu_op"])
    give_activities_to_ops(events, ops)

    steps = [e for e in events["user_annotation"] if e.name.startswith("ProfilerStep#")]
    numbers = [int(step.name.partition("#")[2]) for step in steps]
    check(numbers == [101, 102, 103, 104, 105], f"steps {numbers} instead of 101-105")
    runs = []
    for step in steps:
        spans = split_into_spans([op for op in ops if step.start <= op.start < step.end], layers)
        check_operators(spans)
        check_gradients(spans, events)
        runs.append(spans)
    given = sum(len(span.activities()) for spans in runs for span in spans)
    check(given == sum(len(op.activities) for op in ops), "GPU work outside the steps")

    gpu = trace["deviceProperties"][0]["name"].removeprefix("Tesla ")
    nccl = trace["distributedInfo"]["nccl_version"]
    parameter_lines = [
        one_line(name=json.dumps(name), elements=elements, dtype='"float32"')
        for name, elements in parameters
    ]
    members = [
        '  "format": "stepcast.trace/1"',
        '  "name": "ResNet-50"',
        f'  "source": {json.dumps(SOURCE)}',
        f'  "gpu": {json.dumps(gpu)}',
        '  "precision": "fp32"',
        f'  "versions": {one_line(framework=json.dumps("PyTorch DDP"), nccl=json.dumps(nccl))}',
        listed("parameters", parameter_lines, "  "),
        listed(
            "buffers",
            [
                one_line(elements=elements, dtype=json.dumps(dtype))
                for elements, dtype in read_buffers(events, layers)
            ],
            "  ",
        ),
        listed(
            "batch_norms",
            [
                one_line(span=json.dumps(layer.name), channels=layer.parameters[0][1])
                for layer in layers
                if layer.kind == "bn"
            ],
            "  ",
        ),
        '  "optimizer": {"name": "SGD with momentum", "state_bytes_per_element": 4}',
        f'  "measured": [\n{measure(runs)}\n  ]',
    ]
    print("{\n" + ",\n".join(members) + "\n}")


if __name__ == "__main__":
    main()
