#!/usr/bin/env python3
"""Makes the model zoo, models/*.json but resnet50_v100_fp32.json, from published figures.

    python3 models/make_models.py SHARED_DATA_DIR     # the files, then models/README.md
    python3 models/make_models.py --readme            # models/README.md alone, from the files

SHARED_DATA_DIR holds models.json (tensors with their multiply-accumulates), hardware.json and
tables/, which quote the publications that SOURCES names.

Published is the time of a whole step on one GPU, or of its forward and backward pass. A trace wants
spans, so the time is given to layers in proportion to

    max(2 macs b / F, bytes / B)    bytes = e (parameters + 5 b outputs)

for a micro-batch of b, elements of e bytes and the GPU's peak rate F and memory bandwidth B: 5,
because an output is written, then read and written by a normalisation and by an activation.
Backward is twice forward: the gradients of inputs and of weights each cost what the outputs do.
The optimizer's kernels move STATE_TRAFFIC bytes at the bandwidth that a copy reaches. Only these
shares are modelled; what was measured is the sum.
"""

import csv
import json
import math
import re
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path

MODELS = Path(__file__).resolve().parent
LARGEST_FILE_BYTES = 70_000
FROM_A_TRACE = "resnet50_v100_fp32.json"

SOURCES = {
    "dle": "NVIDIA/DeepLearningExamples @729963d",
    "dlperf": "Oneflow-Inc/DLPerf @28a48de",
    "lambda": "lambdal/deeplearning-benchmark (PyTorch, version 1 of its tables)",
    "llm_foundry": "mosaicml/llm-foundry, scripts/train/benchmarking/README.md",
    "neusight": "sitar-lab/NeuSight @6945927, scripts/asplos/label",
    "pipedream": "msr-fiddle/pipedream, profiler/image_classification/profiles",
    "pollux": "petuum/adaptdl @c793c70, sched/traces",
    "pytorch": "pytorch/pytorch @bf69c14, benchmarks/distributed/ddp/README.md",
}

# Peak rates [FLOP/s] and memory bandwidth [B/s], dense, of the vendors' data sheets; what a copy
# reaches [B/s]: STREAM on A100 and H100 (stas00/ml-engineering), the element-wise kernels of
# resnet50_v100_fp32.json's trace on V100, the share that A100 reaches (0.79) on T4.
RATES = {
    "V100-SXM2": {"fp32": 15.7e12, "amp": 125e12, "memory": 900e9, "copy": 750e9},
    "A100-SXM4": {"tf32": 156e12, "amp": 312e12, "bf16": 312e12, "memory": 2039e9, "copy": 1610e9},
    "H100-SXM5": {"fp32": 67e12, "amp": 989e12, "memory": 3350e9, "copy": 2900e9},
    "T4": {"fp32": 8.1e12, "amp": 65e12, "memory": 320e9, "copy": 253e9},
}

# [B/element] kept beside parameter and gradient, and moved by a step: SGD with momentum reads
# parameter, gradient and momentum and writes two of them; Adam has one state more.
OPTIMIZERS = {"SGD with momentum": (4, 20), "Adam": (8, 28)}


def fail(message):
    sys.exit(f"make_models: {message}")


# ------------------------------------------------------------------------------------------ layers


@dataclass
class Span:
    """Layers that are timed together."""

    name: str
    tensors: list = field(default_factory=list)  # (name, elements), in registration order
    macs: int = 0  # per sample
    outputs: float = 0.0  # elements per sample

    def weight(self, micro_batch, rates, precision):
        bytes_per_element = 4 if precision in ("fp32", "tf32") else 2
        elements = sum(count for _, count in self.tensors) + 5 * micro_batch * self.outputs
        return max(
            2 * self.macs * micro_batch / rates[precision],
            bytes_per_element * elements / rates["memory"],
        )


def span_of(name):
    """The span a tensor belongs to: half a transformer block, or a layer with its normalisation."""
    if module := re.match(r"(?:backbone|fpn|rnns|MLP_layers)\.\w+|conv(?=\.)", name):
        return module[0]
    block = re.search(r"(?:layers?\.(?:encoder_layer_)?|\bh\.)(\d+)\.(?!\d)", name)
    convolutional = re.match(r"(layer\d\.\d+|features|classifier)\.", name)
    if convolutional:
        layer = re.sub(r"\.(weight|bias)$", "", name)
        return re.sub(r"bn(\d)$", r"conv\1", layer).replace("downsample.1", "downsample.0")
    if block:
        second = re.search(r"mlp|ln_2|post_attention|intermediate|(?<!attention)\.output\.", name)
        return f"block {block[1]} {'mlp' if second else 'attention'}"
    if re.match(r"(conv1|bn1)\.", name):
        return "conv1"
    if re.match(r"(bert\.embeddings|wte|wpe|class_token|conv_proj|encoder\.pos|model\.embed)", name):
        return "embeddings"
    return "head" if re.search(r"pooler|cls|fc\.|head|ln_f|encoder\.ln|model\.norm", name) else name


def spans_of(model):
    spans = {}
    sequence = model["seq_len"] or 1
    tied_head_macs = 0
    for tensor in model["tensors"]:
        key = span_of(tensor["name"])
        span = spans.setdefault(key, Span(key))
        span.tensors.append((tensor["name"], tensor["numel"]))
        if tensor["name"] == "wte.weight":  # embeds, and is multiplied with at the end
            tied_head_macs = tensor["fwd_macs"]
            span.outputs += sequence * tensor["shape"][-1]
            continue
        span.macs += tensor["fwd_macs"]
        span.outputs += tensor["fwd_macs"] * tensor["shape"][0] / tensor["numel"]
    if tied_head_macs:
        vocabulary = tied_head_macs / (model["tensors"][0]["shape"][1])
        spans["lm_head"] = Span("lm_head", [], tied_head_macs, vocabulary)
    attention = [span for key, span in spans.items() if key.endswith(" attention")]
    missing = model["fwd_macs_per_sample"] - sum(span.macs for span in spans.values())
    for span in attention:  # products of queries, keys and values, which no tensor stands for
        span.macs += missing // len(attention)
    return list(spans.values())


def batch_norm_buffers(model):
    """Running mean, running variance and a counter of each batch norm: one broadcast per dtype."""
    sizes = [
        tensor["numel"]
        for tensor in model["tensors"]
        if re.search(r"(bn\d|downsample\.1)\.weight$", tensor["name"])
    ]
    if not sizes:
        return []
    return [
        {"elements": 2 * sum(sizes), "dtype": "float32"},
        {"elements": len(sizes), "dtype": "int64"},
    ]


def cifar10_resnet18(model):
    """kuangliu/pytorch-cifar's ResNet-18, which Pollux trains: torchvision's with a first
    convolution of 3 x 3 without stride, no pooling behind it, and 10 classes."""
    tensors = []
    for tensor in model["tensors"]:
        tensor = dict(tensor)
        if tensor["name"] == "conv1.weight":
            tensor |= {"shape": [64, 3, 3, 3], "numel": 1728, "fwd_macs": 1728 * 32 * 32}
        elif tensor["name"].startswith("fc."):
            shape = [10, *tensor["shape"][1:]]
            count = 5120 if len(shape) == 2 else 10
            tensor |= {"shape": shape, "numel": count, "fwd_macs": count if len(shape) == 2 else 0}
        else:  # 32 x 32 positions where ImageNet's images leave 56 x 56, and so on down
            tensor["fwd_macs"] = tensor["fwd_macs"] * 32**2 // 56**2
        tensors.append(tensor)
    macs = sum(tensor["fwd_macs"] for tensor in tensors)
    return model | {"tensors": tensors, "fwd_macs_per_sample": macs}


class Layers:
    """The tensors of a model in registration order, with what each multiplies for a sample."""

    def __init__(self):
        self.tensors = []

    def add(self, name, shape, positions=0):
        count = math.prod(shape)
        self.tensors.append(
            {"name": name, "shape": shape, "numel": count, "fwd_macs": count * positions}
        )

    def convolution(self, name, channels_in, channels_out, kernel, side, norm=True, number=1):
        height, width = kernel
        self.add(f"{name}.conv{number}.weight", [channels_out, channels_in, height, width], side)
        if norm:
            self.add(f"{name}.bn{number}.weight", [channels_out])
            self.add(f"{name}.bn{number}.bias", [channels_out])
        else:
            self.add(f"{name}.conv{number}.bias", [channels_out])

    def model(self, parameters):
        if sum(tensor["numel"] for tensor in self.tensors) != parameters:
            fail(f"{sum(tensor['numel'] for tensor in self.tensors)} parameters, not {parameters}")
        macs = sum(tensor["fwd_macs"] for tensor in self.tensors)
        return {"tensors": self.tensors, "fwd_macs_per_sample": macs, "seq_len": None}


def yolov3():
    """Darknet-53 and three heads for the 20 classes of VOC, at 416 x 416 pixels (Pollux draws 320 to
    608 anew for each batch); petuum/adaptdl, benchmark/models/yolov3/model."""
    layers = Layers()
    side = 416
    layers.convolution("backbone.conv", 3, 32, (3, 3), side**2)
    channels = 32
    for stage, blocks in enumerate((1, 2, 8, 8, 4)):
        side //= 2
        layers.convolution(f"backbone.conv_5_{stage}", channels, 2 * channels, (3, 3), side**2)
        channels *= 2
        for block in range(blocks):
            name = f"backbone.rb_5_{stage}_{block // 4}.{block % 4}"
            layers.convolution(name, channels, channels // 2, (1, 1), side**2)
            layers.convolution(name, channels // 2, channels, (3, 3), side**2, number=2)
    channels_in = 1024
    for scale, (width, positions) in enumerate(((512, 13**2), (256, 26**2), (128, 52**2))):
        for i, (kernel, wide) in enumerate(((1, 0), (3, 1), (1, 0), (3, 1), (1, 0))):
            outputs = width * (1 + wide)
            layers.convolution(
                f"fpn.conv_set_{scale}", channels_in, outputs, (kernel, kernel), positions, number=i
            )
            channels_in = outputs
        layers.convolution(f"fpn.conv{scale}_0", width, 2 * width, (3, 3), positions)
        layers.convolution(f"fpn.conv{scale}_1", 2 * width, 3 * 25, (1, 1), positions, norm=False)
        if scale < 2:
            layers.convolution(f"fpn.conv{scale}", width, width // 2, (1, 1), positions)
            channels_in = width + width // 2
    return layers.model(61_626_049)


def deepspeech2(labels=29, frames=250):
    """deepspeech.pytorch with 5 bidirectional GRUs of 800, and some 5 s of speech in 10 ms steps, half
    of which are left behind the convolutions; petuum/adaptdl, benchmark/models/deepspeech2."""
    layers = Layers()
    layers.convolution("conv", 1, 32, (41, 11), 81 * frames)
    layers.convolution("conv", 32, 32, (21, 11), 41 * frames, number=2)
    for tensor in [tensor for tensor in layers.tensors if ".conv" in tensor["name"]]:
        at = layers.tensors.index(tensor) + 1
        bias = {"name": tensor["name"].replace("weight", "bias"), "shape": [32], "numel": 32}
        layers.tensors.insert(at, bias | {"fwd_macs": 0})
    for layer in range(5):
        inputs = 41 * 32 if layer == 0 else 800
        if layer:
            layers.add(f"rnns.{layer}.bn1.weight", [800])
            layers.add(f"rnns.{layer}.bn1.bias", [800])
        for direction in ("", "_reverse"):
            layers.add(f"rnns.{layer}.weight_ih{direction}", [2400, inputs], frames)
            layers.add(f"rnns.{layer}.weight_hh{direction}", [2400, 800], frames)
            layers.add(f"rnns.{layer}.bias_ih{direction}", [2400])
            layers.add(f"rnns.{layer}.bias_hh{direction}", [2400])
    layers.add("fc.bn1.weight", [800])
    layers.add("fc.bn1.bias", [800])
    layers.add("fc.weight", [labels, 800], frames)
    return layers.model(41_187_968)


def neumf():
    """NeuMF with 32 factors and 3 layers on MovieLens-1M: 6,040 users and 3,706 films;
    petuum/adaptdl, benchmark/models/ncf/model.py."""
    layers = Layers()
    for kind, width in (("GMF", 32), ("MLP", 128)):
        layers.add(f"embed_user_{kind}.weight", [6040, width])
        layers.add(f"embed_item_{kind}.weight", [3706, width])
    for layer, width in ((1, 256), (4, 128), (7, 64)):
        layers.add(f"MLP_layers.{layer}.weight", [width // 2, width], 1)
        layers.add(f"MLP_layers.{layer}.bias", [width // 2])
    layers.add("predict_layer.weight", [1, 64], 1)
    layers.add("predict_layer.bias", [1])
    return layers.model(1_602_657)


# ------------------------------------------------------------------------------------------- times


@dataclass
class Timing:
    """What was published of one micro-batch. Either the whole step, or its two passes."""

    micro_batch: int
    step: list = field(default_factory=list)  # s: of one or of several machines
    passes: tuple = ()  # (forward, backward), s; the optimizer comes on top


def rounded(seconds):
    return float(f"{seconds:.5g}")


def measured(timing, spans, rates, precision, optimizer):
    elements = sum(count for span in spans for _, count in span.tensors)
    optimizer_s = elements * OPTIMIZERS[optimizer][1] / rates["copy"]
    weights = [span.weight(timing.micro_batch, rates, precision) for span in spans]
    if timing.passes:
        forward_s, backward_s = timing.passes
        step = [forward_s + backward_s + optimizer_s]
    else:
        step = sorted(timing.step)
        forward_s = (statistics.median(step) - optimizer_s) / 3
        backward_s = 2 * forward_s
    if forward_s <= 0:
        fail(f"an optimizer of {optimizer_s} s in a step of {step} s")

    def timed(total):
        return [rounded(total * weight / sum(weights)) for weight in weights]

    return {
        "micro_batch": timing.micro_batch,
        "steps": 1,
        "step_time_s": {
            "median": rounded(statistics.median(step)),
            "min": rounded(step[0]),
            "max": rounded(step[-1]),
        },
        "forward": [
            {"name": span.name, "duration_s": time} for span, time in zip(spans, timed(forward_s))
        ],
        "backward": [
            {"name": span.name, "duration_s": time, "gradients": gradients_of(span)}
            for span, time in reversed(list(zip(spans, timed(backward_s))))
        ],
        "optimizer": [{"name": optimizer, "duration_s": rounded(optimizer_s)}],
    }


def gradients_of(span):
    return [name for name, _ in reversed(span.tensors)]


def shortened(name):
    """BERT's tensors with the prefix that they all share left out."""
    return re.sub(r"^(bert\.)?(encoder\.)?(layers?\.)?(?=.*\d+\.(att|int|out))", "", name)


# ------------------------------------------------------------------------------------------- files


def rows_of(data, table):
    with open(data / "tables" / table, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pollux(data, model, micro_batches):
    rows = [
        row
        for row in rows_of(data, "pollux_placements.csv")
        if row["model"] == model and row["num_gpus"] == "1"
    ]
    return [
        Timing(b, [float(row["compute_s"])])
        for b in micro_batches
        for row in rows
        if float(row["local_bsz"]) == b
    ]


def deep_learning_examples(data, path, gpu, precision, micro_batch, section=""):
    """One-GPU rows, step time = batch / throughput."""
    times = {
        int(row["batch_per_gpu"]) / float(row["throughput"])
        for row in rows_of(data, "deeplearningexamples.csv")
        if row["source_path"] == path
        and (row["gpu"], row["precision"], row["n_gpus"]) == (gpu, precision, "1")
        and row["batch_per_gpu"] == str(micro_batch)
        and section in row["section"]
    }
    if len(times) != 1:
        fail(f"{path}, {gpu}, {precision}, {micro_batch}: {len(times)} times")
    return [Timing(micro_batch, list(times))]


def lambda_labs(data, model, precision, gpu):
    """All hosts with one such GPU; with one GPU the total batch is that of the GPU."""
    rows = [
        row
        for row in rows_of(data, "lambdalabs_long.csv")
        if (row["set"], row["model"], row["precision"], row["n_gpus"])
        == ("v1", model, precision, "1")
        and row["gpu"].endswith(gpu)
    ]
    batches = {int(row["batch_table_value"]) for row in rows}
    if len(batches) != 1:
        fail(f"{model} on {gpu}: batches {batches}")
    batch = batches.pop()
    return [Timing(batch, [batch / float(row["throughput"]) for row in rows])]


def neusight(data, gpu, model, micro_batches):
    timings = []
    for row in rows_of(data, "neusight_labels.csv"):
        one = re.fullmatch(rf"{model}-train-\d+-(\d+)", row["name"])
        if row["gpu"] == gpu and one and int(one[1]) in micro_batches:
            passes = float(row["fw_latency"]) / 1e3, float(row["bwall_latency"]) / 1e3
            timings.append(Timing(int(one[1]), passes=passes))
    return sorted(timings, key=lambda timing: timing.micro_batch)


def pytorch_ddp(data, model, wrapped="no"):
    return [
        Timing(int(row["batch_per_gpu"]), [float(row["sec_per_iter_p50"])])
        for row in rows_of(data, "pytorch_ddp_benchmark.csv")
        if (row["model"], row["n_gpus"], row["ddp"]) == (model, "1", wrapped)
    ]


def dlperf(data, model, precision):
    hardware = json.loads((data / "hardware.json").read_text(encoding="utf-8"))
    timings = []
    for row in hardware["end_to_end_golden"]:
        batch = re.fullmatch(rf"{precision} bs(\d+)/GPU", row["precision"])
        if row["model"] == model and row["src"] == "dlperf" and batch:
            throughput = dict(row["rows"])[1]
            timings.append(Timing(int(batch[1]), [int(batch[1]) / throughput]))
    return timings


def by_utilisation(data, model, published, sequence, peak):
    """Forward and backward from the share of the peak that a model of that size reached."""
    for row in rows_of(data, "llm_foundry.csv"):
        if (
            row["section"].startswith("A100 80GB")
            and (row["Model"], row["SeqLen (T)"], row["# GPUs"]) == (published, sequence, "8")
        ):
            batch = int(row["MicroBatchSize"])
            time = 3 * 2 * model["fwd_macs_per_sample"] * batch / (float(row["MFU"]) / 100 * peak)
            return [Timing(batch, passes=(time / 3, 2 * time / 3))], row["MFU"]
    return fail(f"no {published} of {sequence} tokens")


SPLIT = (
    "the shares of forward, backward (twice forward) and layers by FLOPs and bytes, the optimizer "
    "by its memory traffic (models/make_models.py)"
)
ON_TOP = (
    "the shares of layers by FLOPs and bytes within each pass; the optimizer by its memory traffic, "
    "on top of what was measured (models/make_models.py)"
)


class Zoo:
    """Writes files and holds what they share."""

    def __init__(self, data, folder):
        self.data = data
        self.folder = folder
        self.models = json.loads((data / "models.json").read_text(encoding="utf-8"))

    def add(self, file, name, model, gpu, precision, optimizer, timings, published, modelled,
            is_modelled=False, in_ddp=False):  # fmt: skip
        if not timings:
            fail(f"{file}: nothing was published")
        tensors = [tensor | {"name": shortened(tensor["name"])} for tensor in model["tensors"]]
        spans = spans_of(model)
        for span in spans:
            span.tensors = [(shortened(tensor), count) for tensor, count in span.tensors]
        rates = next(rates for kind, rates in RATES.items() if gpu.startswith(kind))
        self.write(
            file, name, gpu, precision, optimizer, tensors, batch_norm_buffers(model),
            [measured(timing, spans, rates, precision, optimizer) for timing in timings],
            published, modelled, is_modelled, in_ddp,
        )  # fmt: skip

    def write(self, file, name, gpu, precision, optimizer, tensors, buffers, steps, published,
              modelled, is_modelled=False, in_ddp=False):  # fmt: skip
        trace = {
            "format": "stepcast.trace/1",
            "name": name,
            "source": f"Measured: {published}. Modelled: {modelled}.",
            "gpu": gpu,
            "precision": precision,
            "parameters": [
                {"name": tensor["name"], "elements": tensor["numel"], "dtype": "float32"}
                for tensor in tensors
            ],
            **({"buffers": buffers} if buffers else {}),
            "optimizer": {
                "name": optimizer,
                "state_bytes_per_element": OPTIMIZERS[optimizer][0],
            },
            **({"modelled": True} if is_modelled else {}),
            **({"in_ddp": True} if in_ddp else {}),
            "measured": steps,
        }
        text = layout(trace)
        if len(text) > LARGEST_FILE_BYTES:
            fail(f"{file} has {len(text)} bytes")
        (self.folder / file).write_text(text, encoding="utf-8")


def layout(trace):
    """One line for each parameter and span."""

    def line(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def block(values, indent):
        return "[\n" + ",\n".join(" " * indent + line(value) for value in values) + "]"

    fields = []
    for key, value in trace.items():
        if key == "parameters":
            text = block(value, 2)
        elif key == "measured":
            steps = []
            for step in value:
                parts = [
                    f' "{part}": {block(body, 3) if part in ("forward", "backward") else line(body)}'
                    for part, body in step.items()
                ]
                steps.append("  {" + ",\n  ".join(parts).lstrip() + "}")
            text = "[\n" + ",\n".join(steps) + "]"
        else:
            text = line(value)
        fields.append(f' "{key}": {text}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def pipedream_steps(data, model, file):
    """Layers as PipeDream timed them. Its numbers follow the order in which modules ran, and what
    has no parameters counts to the layer before it."""
    text = (data / "tables" / "pipedream" / file).read_text(encoding="utf-8")
    nodes = {}
    for match in re.finditer(
        r"^node(\d+) -- (.*) -- forward_compute_time=([\d.]+), backward_compute_time=([\d.]+), "
        r"activation_size=([\d.]+), parameter_size=([\d.]+)",
        text,
        re.MULTILINE,
    ):
        nodes[int(match[1])] = (match[2], *(float(match[i]) for i in range(3, 7)))
    groups = []
    tensors = list(model["tensors"])
    micro_batch = set()
    for _, (module, forward, backward, activations, size) in sorted(nodes.items()):
        if module.startswith("Input"):
            continue  # its time is that of the data loader
        if classes := re.match(r"Linear\(.*out_features=(\d+)", module):
            micro_batch.add(activations / 4 / int(classes[1]))
        owned = []
        while sum(4 * tensor["numel"] for tensor in owned) < size:
            owned.append(tensors.pop(0))
        if sum(4 * tensor["numel"] for tensor in owned) != size:
            fail(f"{file}: {module} does not fit {owned}")
        if owned and not module.startswith("BatchNorm"):
            groups.append([Span(re.sub(r"\.weight$", "", owned[0]["name"])), 0.0, 0.0])
        group = groups[-1]
        group[0].tensors += [(tensor["name"], tensor["numel"]) for tensor in owned]
        group[1] += forward / 1e3
        group[2] += backward / 1e3
    if tensors or len(micro_batch) != 1:
        fail(f"{file}: {tensors} left over, micro-batches {micro_batch}")
    total = sum(forward + backward for _, forward, backward in groups)
    return {
        "micro_batch": int(micro_batch.pop()),
        "steps": 1,
        "step_time_s": {key: rounded(total) for key in ("median", "min", "max")},
        "forward": [
            {"name": span.name, "duration_s": rounded(forward)} for span, forward, _ in groups
        ],
        "backward": [
            {"name": span.name, "duration_s": rounded(time), "gradients": gradients_of(span)}
            for span, _, time in reversed(groups)
        ],
        "optimizer": [],
    }


def make(data, folder):
    zoo = Zoo(data, folder)
    models = zoo.models
    sgd, adam = OPTIMIZERS

    # One T4 of an AWS g4dn.12xlarge, by Pollux: several micro-batches each.
    wrapped = (
        "num_gpus 1 in AdaptDL's DDP, step time without the synchronisation of a single replica "
        "(step_time_s - exposed_sync_s)"
    )
    zoo.add(
        "resnet18_cifar10_t4_fp32.json", "ResNet-18 on CIFAR-10", cifar10_resnet18(models["resnet18"]),
        "T4", "fp32", sgd, pollux(data, "cifar10", (32, 64, 129, 257, 513, 1024)),
        f"whole steps, {SOURCES['pollux']}/cifar10/placements.csv, {wrapped}", SPLIT, in_ddp=True,
    )  # fmt: skip
    zoo.add(
        "resnet50_t4_amp.json", "ResNet-50", models["resnet50"], "T4", "amp", sgd,
        pollux(data, "imagenet", (20, 57, 115, 200)),
        f"whole steps with apex AMP, {SOURCES['pollux']}/imagenet/placements.csv, {wrapped}", SPLIT, in_ddp=True,
    )  # fmt: skip
    zoo.add(
        "bert_base_squad_t4_fp32.json", "BERT-base, 384 tokens", models["bert_base_pretraining_seq384"],
        "T4", "fp32", adam, pollux(data, "bert", (4, 8, 12)),
        f"whole steps on SQuAD, {SOURCES['pollux']}/bert/placements.csv, {wrapped}; the precision is "
        "not stated and taken for FP32, the parameters are those of pre-training", SPLIT, in_ddp=True,
    )  # fmt: skip

    zoo.add(
        "yolov3_voc_t4_amp.json", "YOLOv3 on VOC", yolov3(), "T4", "amp", sgd,
        pollux(data, "yolov3", (4, 6, 8, 11, 16)),
        f"whole steps with apex AMP, {SOURCES['pollux']}/yolov3/placements.csv, {wrapped}; the size "
        "of the images changes from step to step", SPLIT, in_ddp=True,
    )  # fmt: skip
    zoo.add(
        "deepspeech2_t4_fp32.json", "DeepSpeech2", deepspeech2(), "T4", "fp32", sgd,
        pollux(data, "deepspeech2", (10, 14, 20, 28, 40, 57, 80)),
        f"whole steps, {SOURCES['pollux']}/deepspeech2/placements.csv, {wrapped}", SPLIT, in_ddp=True,
    )  # fmt: skip
    zoo.add(
        "neumf_t4_fp32.json", "NeuMF on MovieLens-1M", neumf(), "T4", "fp32", adam,
        pollux(data, "ncf", (32, 182, 1025, 2901, 5803, 11606, 23211, 32768)),
        f"whole steps, {SOURCES['pollux']}/ncf/placements.csv, {wrapped}; they are bound by the host",
        SPLIT, in_ddp=True,
    )  # fmt: skip

    # V100.
    zoo.add(
        "resnet101_v100_fp32.json", "ResNet-101", models["resnet101"], "V100-SXM2-32GB", "fp32", sgd,
        pytorch_ddp(data, "resnet101"),
        f"whole step, {SOURCES['pytorch']}, ResNet-101, 1 GPU without DDP, p50; the README names a "
        "V100 of a DGX-1 and not its memory", SPLIT,
    )  # fmt: skip
    resnet_readme = "PyTorch/Classification/ConvNets/resnet50v1.5/README.md"
    pipeline = "batch / throughput, input pipeline included"
    zoo.add(
        "resnet50_v100_amp.json", "ResNet-50", models["resnet50"], "V100-SXM2-16GB", "amp", sgd,
        deep_learning_examples(data, resnet_readme, "V100-16GB", "mixed", 256),
        f"whole step, {SOURCES['dle']}, {resnet_readme}, DGX-1 16GB, 1 GPU, mixed precision, 1200 "
        f"images/s: {pipeline}", SPLIT,
    )  # fmt: skip
    for precision in ("FP32", "AMP"):
        zoo.add(
            f"bert_base_v100_{precision.lower()}.json", "BERT-base, 128 tokens",
            models["bert_base_pretraining_seq128"], "V100-SXM2-16GB", precision.lower(), adam,
            dlperf(data, "BERT-base pretraining", precision),
            f"whole steps of pre-training, {SOURCES['dlperf']}, PyTorch BERT README, {precision}, 1 "
            "GPU, batch / throughput (median of 5 runs)", SPLIT,
        )  # fmt: skip
    bert_readme = "PyTorch/LanguageModeling/BERT/README.md"
    squad = "the parameters are those of pre-training"
    zoo.add(
        "bert_large_squad_v100_amp.json", "BERT-large, 384 tokens",
        models["bert_large_pretraining_seq384"], "V100-SXM2-32GB", "amp", adam,
        deep_learning_examples(data, bert_readme, "V100-32GB", "mixed", 16, "Fine-tuning"),
        f"whole step of fine-tuning on SQuAD, {SOURCES['dle']}, {bert_readme}, DGX-1 32G, 1 GPU, mixed "
        f"precision, 52 sequences/s: {pipeline}; {squad}", SPLIT,
    )  # fmt: skip

    # A100.
    for precision, table, rate in (("tf32", "TF32", 938), ("amp", "mixed", 2470)):
        zoo.add(
            f"resnet50_a100_{precision}.json", "ResNet-50", models["resnet50"], "A100-SXM4-80GB",
            precision, sgd, deep_learning_examples(data, resnet_readme, "A100-80GB", table, 256),
            f"whole step, {SOURCES['dle']}, {resnet_readme}, DGX A100 80GB, 1 GPU, {table}, {rate} "
            f"images/s: {pipeline}", SPLIT,
        )  # fmt: skip
    zoo.add(
        "bert_large_squad_a100_amp.json", "BERT-large, 384 tokens",
        models["bert_large_pretraining_seq384"], "A100-SXM4-80GB", "amp", adam,
        deep_learning_examples(data, bert_readme, "A100-80GB", "mixed", 32, "Fine-tuning"),
        f"whole step of fine-tuning on SQuAD, {SOURCES['dle']}, {bert_readme}, DGX A100 80GB, 1 GPU, "
        f"mixed precision, 110.5 sequences/s: {pipeline}; {squad}", SPLIT,
    )  # fmt: skip

    # H100.
    zoo.add(
        "resnet50_h100_amp.json", "ResNet-50", models["resnet50"], "H100-SXM5-80GB", "amp", sgd,
        lambda_labs(data, "resnet50", "fp16", "H100 80GB SXM5"),
        f"whole step, {SOURCES['lambda']}, resnet50 fp16, median and range of all machines with one "
        "H100 80GB SXM5: batch / throughput, input pipeline included", SPLIT,
    )  # fmt: skip
    zoo.add(
        "bert_base_squad_h100_amp.json", "BERT-base, 384 tokens",
        models["bert_base_pretraining_seq384"], "H100-SXM5-80GB", "amp", adam,
        lambda_labs(data, "bert_base_squad", "fp16", "H100 80GB SXM5"),
        f"whole step of fine-tuning on SQuAD, {SOURCES['lambda']}, bert_base_squad fp16, median and "
        f"range of all machines with one H100 80GB SXM5: batch / throughput, input pipeline included; "
        f"{squad}, 384 tokens are the default of that script", SPLIT,
    )  # fmt: skip
    passes = "forward and backward pass apart, without optimizer"
    zoo.add(
        "bert_large_h100_fp32.json", "BERT-large, 512 tokens", models["bert_large_pretraining_seq512"],
        "H100-SXM5-80GB", "fp32", adam, neusight(data, "NVIDIA_H100_80GB_HBM3", "bert_large", (2, 8)),
        f"{passes}, {SOURCES['neusight']}/NVIDIA_H100_80GB_HBM3/bert_large-train-512-2.json and -8",
        ON_TOP,
    )  # fmt: skip
    zoo.add(
        "gpt2_large_h100_fp32.json", "GPT-2 large, 1024 tokens", models["gpt2_large"],
        "H100-SXM5-80GB", "fp32", adam, neusight(data, "NVIDIA_H100_80GB_HBM3", "gpt2_large", (1, 4)),
        f"{passes}, {SOURCES['neusight']}/NVIDIA_H100_80GB_HBM3/gpt2_large-train-1024-1.json and -4",
        ON_TOP,
    )  # fmt: skip

    # No GPU named, but each layer timed.
    for key, name in (("resnet18", "ResNet-18"), ("vgg16", "VGG-16")):
        model = models[key]
        zoo.write(
            f"{key}_pipedream_fp32.json", name, "not named by PipeDream", "fp32", sgd,
            model["tensors"], batch_norm_buffers(model),
            [pipedream_steps(data, model, f"{key}.graph.txt")],
            f"forward and backward of each layer, {SOURCES['pipedream']}/{key}/graph.txt; the "
            "micro-batch follows from the activations",
            "nothing; there is no optimizer",
        )  # fmt: skip

    # No step on one GPU was published.
    peak = RATES["A100-SXM4"]["bf16"]
    for key, name, published, sequence in (
        ("gpt2_small", "GPT-2, 1024 tokens", "125m", "1024"),
        ("gpt2_medium", "GPT-2 medium, 1024 tokens", "350m", "1024"),
        ("gpt2_xl", "GPT-2 XL, 1024 tokens", "1b", "1024"),
        ("llama2_7b", "Llama-2-7B, 4096 tokens", "7b", "4096"),
    ):
        timings, share = by_utilisation(data, models[key], published, sequence, peak)
        zoo.add(
            f"{key}_a100_bf16.json", name, models[key], "A100-SXM4-80GB", "bf16", adam, timings,
            "nothing of this model on one GPU",
            f"forward and backward take their FLOPs / ({share} % of 312 TFLOP/s), the share that "
            f"{SOURCES['llm_foundry']} reports for its {published} model of {sequence} tokens on 8 "
            "A100 80GB (FSDP, communication included), backward twice forward; "
            "the shares of layers by FLOPs and bytes, the optimizer by its memory traffic",
            True,
        )  # fmt: skip
    vit = models["vit_b_16"]
    bert = models["bert_large_pretraining_seq384"]
    rate = 110.5 * 6 * bert["fwd_macs_per_sample"]
    zoo.add(
        "vit_b_16_a100_amp.json", "ViT-B/16", vit, "A100-SXM4-80GB", "amp", adam,
        [Timing(256, [256 * 6 * vit["fwd_macs_per_sample"] / rate])],
        "nothing of this model",
        f"the step takes its FLOPs at the {rate / 1e12:.1f} TFLOP/s of bert_large_squad_a100_amp.json; "
        + SPLIT, True,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ README

README = """# Models

Step traces: what one GPU does for one micro-batch ([format](../docs/formats.md)). `stepcast list models`
prints them; a micro-batch between or near the measured ones is made from them
([how](../docs/model.md#11-another-micro-batch)). No profile stands behind most of them but a published
step time, so how it is spread over layers is a model: the table says which part is which. Use them for
questions about communication, and a trace of your own for the last per cent of computation. `stepcast run`
warns when the platform has another GPU. BERT's FLOPs leave out its decoder into the vocabulary, and throughputs
of whole training runs include their input pipeline.

[`make_models.py`](make_models.py) makes the files and this page,
[`make_resnet50_v100_fp32.py`](make_resnet50_v100_fp32.py) makes `resnet50_v100_fp32.json`.

| file | model | GPU | precision | parameters | micro-batches | measured | modelled |
|---|---|---|---|---|---|---|---|
"""


def readme(folder):
    lines = []
    for path in sorted(folder.glob("*.json")):
        trace = json.loads(path.read_text(encoding="utf-8"))
        source = trace["source"].replace("|", "/")
        parts = re.fullmatch(r"Measured: (.*)\. Modelled: (.*)\.", source)
        what, how = parts.groups() if parts else (source.rstrip("."), "nothing")
        count = sum(parameter["elements"] for parameter in trace["parameters"])
        batches = ", ".join(str(step["micro_batch"]) for step in trace["measured"])
        lines.append(
            f"| [`{path.name}`]({path.name}) | {trace['name']} | {trace['gpu']} | "
            f"{trace['precision']} | {count:,} | {batches} | {what} | {how} |\n"
        )
    return README + "".join(lines)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] != "--readme":
        make(Path(sys.argv[1]), MODELS)
    (MODELS / "README.md").write_text(readme(MODELS), encoding="utf-8")


if __name__ == "__main__":
    main()
