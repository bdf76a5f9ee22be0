#!/usr/bin/env python3
"""Makes the suites of measured steps, tests/validation/*.json, and their step traces in models/.

    python3 tests/validation/make_cases.py SHARED_DATA_DIR

SHARED_DATA_DIR holds models.json and tables/, which quote the publications. The figures stand in the
suites again, each file with its source, so that they can be checked and used without the tables.
"""

import csv
import importlib.util
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
spec = importlib.util.spec_from_file_location("make_models", FOLDER.parents[1] / "models/make_models.py")
make_models = importlib.util.module_from_spec(spec)
sys.modules["make_models"] = make_models
spec.loader.exec_module(make_models)

Timing = make_models.Timing
SPLIT = make_models.SPLIT
SGD, ADAM = make_models.OPTIMIZERS
# GeForce RTX 2080 Ti: data sheet, 13.4 TFLOP/s and 616 GB/s; a copy reaches the share that A100 does.
make_models.RATES["RTX 2080 Ti"] = {"fp32": 13.4e12, "memory": 616e9, "copy": 487e9}


def scenario(question, model, platform, calibration=None, **parts):
    found = {
        "format": "stepcast.scenario/1",
        "question": question,
        "model": model,
        "platform": f"../../platforms/{platform}",
    }
    if calibration:
        found["calibration"] = f"../../platforms/{calibration}"
    return {**found, "cluster": {"gpus": 1}, **parts}


def case(name, scenario_name, split, sets, step_time_s, noise=None):
    return {
        "id": name,
        "scenario": scenario_name,
        "split": split,
        "set": sets,
        "measured": {
            "step_time_s": float(f"{step_time_s:.6g}"),
            "noise_relative": noise and float(f"{noise:.2g}"),
        },
    }


def write(file, suite, name, source, machine, scenarios, cases, **others):
    document = {
        "format": "stepcast.validation/1",
        "suite": suite,
        "name": name,
        "source": source,
        "machine": machine,
        **others,
        "scenarios": scenarios,
        "cases": cases,
    }
    fields = []
    for key, value in document.items():
        if key in ("cases", "fit", "orders"):
            text = "[\n" + ",\n".join("    " + json.dumps(one) for one in value) + "\n  ]"
        elif key in ("scenarios", "imports"):
            text = "{\n" + ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()) + "\n  }"
        else:
            text = json.dumps(value, ensure_ascii=False)
        fields.append(f'  "{key}": {text}')
    (FOLDER / file).write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------ models


def resnext(model, base_width, total):
    """torchvision's ResNeXt of 32 groups: a bottleneck's middle is planes * base_width / 64 * 32
    wide, and its 3 x 3 convolution sees a 32nd of that."""
    tensors = []
    for tensor in model["tensors"]:
        tensor = dict(tensor)
        inner = re.match(r"layer\d\.\d+\.(conv|bn)([123])\.", tensor["name"])
        if inner:
            shape = list(tensor["shape"])
            positions = tensor["fwd_macs"] // tensor["numel"]
            layer, part = inner.groups()
            factor = base_width * 32 // 64
            if layer == "bn" and part != "3":
                shape = [shape[0] * factor]
            elif layer == "conv" and part == "1":
                shape[0] *= factor
            elif layer == "conv" and part == "2":
                shape[0] *= factor
                shape[1] = shape[0] // 32
            elif layer == "conv":
                shape[1] *= factor
            count = 1
            for size in shape:
                count *= size
            tensor |= {"shape": shape, "numel": count, "fwd_macs": count * positions}
        tensors.append(tensor)
    if (found := sum(tensor["numel"] for tensor in tensors)) != total:
        sys.exit(f"make_cases: ResNeXt has {found} parameters, not {total}")
    return model | {"tensors": tensors, "fwd_macs_per_sample": sum(t["fwd_macs"] for t in tensors)}


def add_models(zoo):
    models = zoo.models
    ddp = make_models.SOURCES["pytorch"]
    for key, model in (
        ("resnet101", models["resnet101"]),
        ("resnext50_32x4d", resnext(models["resnet50"], 4, 25_028_904)),
        ("resnext101_32x8d", resnext(models["resnet101"], 8, 88_791_336)),
    ):
        zoo.add(
            f"{key}_v100_fp32.json", key, model, "V100-SXM2-32GB", "fp32", SGD,
            make_models.pytorch_ddp(zoo.data, key, "yes"),
            f"whole step, {ddp}, {key}, 1 GPU with DDP, p50", SPLIT, in_ddp=True,
        )  # fmt: skip
    bert = "PyTorch/LanguageModeling/BERT/README.md"
    for length, precision, table, batch, steps in (
        (128, "tf32", "TF32", 128, 64), (128, "amp", "mixed", 256, 32),
        (512, "tf32", "TF32", 16, 256), (512, "amp", "mixed", 32, 128),
    ):  # fmt: skip
        model = models[f"bert_large_pretraining_seq{length}"]
        (timing,) = make_models.deep_learning_examples(zoo.data, bert, "A100-80GB", table, batch, "Pre-training")
        # One optimizer step in so many micro-steps.
        elements = sum(tensor["numel"] for tensor in model["tensors"])
        optimizer_s = elements * make_models.OPTIMIZERS[ADAM][1] / make_models.RATES["A100-SXM4"]["copy"]
        passes_s = timing.step[0] - optimizer_s / steps
        zoo.add(
            f"bert_large_{length}_a100_{precision}.json", f"BERT-large, {length} tokens", model,
            "A100-SXM4-80GB", precision, ADAM, [Timing(batch, passes=(passes_s / 3, 2 * passes_s / 3))],
            f"{make_models.SOURCES['dle']}, {bert}, pre-training, 1 GPU, {steps} micro-steps of batch / throughput",
            f"the optimizer, once in {steps} micro-steps, by its memory traffic; " + SPLIT,
        )  # fmt: skip
    hkbu = "HKBU-HPML/ddl-benchmarks (arXiv:2005.13247), 1 GPU, batch / throughput"
    for key, model, batch in (
        ("resnet50", "ResNet-50", 64),
        ("bert_base", "BERT-Base", 64),
        ("bert_large", "BERT-Large", 8),
    ):
        row = next(r for r in hkbu_rows(zoo.data) if r["model"] == model and r["n_gpus"] == "1")
        published = models[key if key == "resnet50" else f"{key}_pretraining_seq128"]
        tensors = [
            tensor | {"name": make_models.shortened(tensor["name"])} for tensor in published["tensors"]
        ]
        spans = make_models.spans_of(published)
        for span in spans:
            span.tensors = [(make_models.shortened(tensor), count) for tensor, count in span.tensors]
        how = SPLIT
        if key != "resnet50":
            # BertForPreTraining predicts a word at every position, with the words' embeddings as weights.
            # That is the last of forward and the first of backward; its gradient is not complete before
            # that of the embeddings, so all of it passes before the first AllReduce can start.
            words = next(t for t in published["tensors"] if "word_embeddings" in t["name"])["shape"]
            macs = published["seq_len"] * words[0] * words[1]
            spans.append(make_models.Span("decoder", [], macs, published["seq_len"] * words[0]))
            how += "; with the decoder into the vocabulary, which shares the embeddings' weights"
        zoo.write(
            f"{key}_2080ti_fp32.json", model, "RTX 2080 Ti", "fp32", SGD, tensors,
            make_models.batch_norm_buffers(published),
            [make_models.measured(Timing(batch, [float(row["step_time_s"])]), spans,
                                  make_models.RATES["RTX 2080 Ti"], "fp32", SGD)],
            hkbu, how,
        )  # fmt: skip
    add_mini_transformer(zoo)


MINI = "minitrainbench, results/stability_repeat3/ddp_1gpu.json"


def add_mini_transformer(zoo):
    """d_model 512, 6 layers, vocabulary 8192, 256 tokens, as the rows say; the shapes are GPT-2's with
    a head of its own."""
    width, length, vocabulary = 512, 256, 8192
    tensors = [("wte", vocabulary * width, 0), ("wpe", length * width, 0)]
    for layer in range(6):
        for name, count in (("ln_1", 2 * width), ("attn.qkv", 3 * width * width), ("attn.proj", width * width),
                            ("ln_2", 2 * width), ("mlp.fc", 4 * width * width), ("mlp.proj", 4 * width * width)):
            tensors.append((f"h.{layer}.{name}", count, count if count > 2 * width else 0))
    tensors += [("ln_f", 2 * width, 0), ("head", vocabulary * width, vocabulary * width)]
    row = next(r for r in make_models.rows_of(zoo.data, "minitrainbench.csv")
               if r["file"] == "results__stability_repeat3__ddp_1gpu.json")
    parts = {key: float(row[f"{key}_ms"]) * 1e-3 for key in ("fwd_bwd", "opt", "step")}
    spans = [make_models.Span(name, [(name, count)], macs * length, length * width) for name, count, macs in tensors]
    steps = []
    rates = make_models.RATES["A100-SXM4"]
    for micro_batch in (1, 2):
        forward = sum(span.weight(micro_batch, rates, "bf16") for span in spans)
        step = make_models.measured(Timing(micro_batch, passes=(forward, 2 * forward)), spans, rates, "bf16", ADAM)
        for phase, share in (("forward", 1 / 3), ("backward", 2 / 3)):
            for span in step[phase]:
                span["host_s"] = make_models.rounded(parts["fwd_bwd"] * share / len(spans))
        # The rest of the step is the optimizer's: it ends with a wait for the GPU.
        step["optimizer"][0]["host_s"] = make_models.rounded(parts["step"] - parts["fwd_bwd"])
        step["step_time_s"] = dict.fromkeys(("median", "min", "max"), make_models.rounded(parts["step"]))
        steps.append(step)
    zoo.write(
        "mini_transformer_a100_bf16.json", "Transformer of minitrainbench", "A100-SXM4-40GB", "bf16", ADAM,
        [{"name": name, "numel": count} for name, count, _ in tensors], [], steps,
        f"forward with backward and the optimizer at a micro-batch of 2, {MINI}",
        "what the GPU takes, by FLOPs and bytes; the time measured is the host's, who issues as many kernels for a "
        "micro-batch of 1: backward twice as many as forward, for each layer as many",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------ suites


def pytorch_ddp(data):
    rows = [r for r in make_models.rows_of(data, "pytorch_ddp_benchmark.csv") if r["ddp"] == "yes"]
    zoo = "../../models"
    files = {
        "resnet50": f"{zoo}/resnet50_v100_fp32.json",
        "resnet101": "models/resnet101_v100_fp32.json",
        "resnext50_32x4d": "models/resnext50_32x4d_v100_fp32.json",
        "resnext101_32x8d": "models/resnext101_32x8d_v100_fp32.json",
    }
    scenarios, cases = {}, []
    for model, file in files.items():
        trace = json.loads((FOLDER / file).read_text(encoding="utf-8"))["measured"][0]
        mine = [row for row in rows if row["model"] == model]
        alone = next(float(row["sec_per_iter_p50"]) for row in mine if row["n_gpus"] == "1")
        factor = float(f"{alone / trace['step_time_s']['median']:.6g}")
        scaled = {"imperfections": {"slow_nodes": [{"node": 0, "time_factor": factor}]}}
        scenarios[model] = scenario(
            f"{model} in DDP on a DGX-1V", file, "dgx1v.json", "abci_v100.calibration.json",
            **(scaled if factor != 1.0 else {}),
        )  # fmt: skip
        for row in mine:
            gpus = int(row["n_gpus"])
            time = float(row["sec_per_iter_p50"])
            cases.append(
                case(f"{model} {gpus} GPUs", model, "test" if gpus > 1 else "fit", {"cluster.gpus": gpus},
                     time, 0.0005 / time / 3**0.5)
            )  # fmt: skip
    write(
        "ddp_pytorch.json", "ddp", "PyTorch's own DDP benchmark, FP32, 32 samples per GPU",
        f"{rows[0]['source']}: p50 of sec/iter with DDP, PyTorch 1.4.0a0, printed to 1 ms, which is the "
        "noise given. Computation is scaled to the row of one GPU with DDP, so that row (split fit) "
        "tells nothing and the wrapper's cost on one GPU is in all predictions.",
        "8 V100 of a DGX-1, NVLink hybrid cube mesh", scenarios, cases, bars={"mean_abs_error": 0.06},
    )  # fmt: skip


def dle_rows(data, path, gpu, precision, batch, section):
    return [
        row
        for row in make_models.rows_of(data, "deeplearningexamples.csv")
        if row["source_path"] == path and row["gpu"] == gpu and row["precision"] == precision
        and row["batch_per_gpu"] == str(batch) and section in row["section"] and row["n_gpus"]
    ]  # fmt: skip


def deep_learning_examples(data):
    """One file for plain steps, one for accumulation."""
    resnet = "PyTorch/Classification/ConvNets/resnet50v1.5/README.md"
    bert = "PyTorch/LanguageModeling/BERT/README.md"
    source = "NVIDIA/DeepLearningExamples @729963dd47e7c8bd462ad10bfac7a7b0b604e6dd, {}: batch / throughput of training, input pipeline included. Computation is that of the row of one GPU, which has the split fit."
    zoo = "../../models"
    v100 = ("dgx1v.json", "abci_v100.calibration.json")
    a100 = ("dgx_a100.json", "dgx_a100.calibration.json")
    plain = [
        ("resnet50 V100 AMP", f"{zoo}/resnet50_v100_amp.json", v100, resnet, "V100-16GB", "mixed", 256, ""),
        ("resnet50 A100 TF32", f"{zoo}/resnet50_a100_tf32.json", a100, resnet, "A100-80GB", "TF32", 256, ""),
        ("resnet50 A100 AMP", f"{zoo}/resnet50_a100_amp.json", a100, resnet, "A100-80GB", "mixed", 256, ""),
        ("BERT-large SQuAD V100 AMP", f"{zoo}/bert_large_squad_v100_amp.json", v100, bert, "V100-32GB", "mixed", 16, "Fine-tuning"),
        ("BERT-large SQuAD A100 AMP", f"{zoo}/bert_large_squad_a100_amp.json", a100, bert, "A100-80GB", "mixed", 32, "Fine-tuning"),
    ]  # fmt: skip
    scenarios, cases = {}, []
    for name, file, (platform, calibration), path, gpu, precision, batch, section in plain:
        scenarios[name] = scenario(f"{name} in DDP", file, platform, calibration)
        for row in dle_rows(data, path, gpu, precision, batch, section):
            gpus = int(row["n_gpus"])
            cases.append(
                case(f"{name} {gpus} GPUs", name, "test" if gpus > 1 else "fit", {"cluster.gpus": gpus},
                     batch * gpus / float(row["throughput"]))
            )  # fmt: skip
    write(
        "ddp_deeplearningexamples.json", "ddp", "NVIDIA DeepLearningExamples, 1 to 8 GPUs",
        source.format(f"{resnet} and {bert}"), "DGX-1 (8 V100) and DGX A100 (8 A100)", scenarios, cases,
        bars={"mean_abs_error": 0.06},
    )  # fmt: skip

    scenarios, cases = {}, []
    for length in (128, 512):
        for precision, table, batch in (
            ("tf32", "TF32", {128: 128, 512: 16}[length]),
            ("amp", "mixed", {128: 256, 512: 32}[length]),
        ):
            name = f"BERT-large {length} tokens A100 {precision}"
            scenarios[name] = scenario(
                f"{name}, large batches by accumulation", f"models/bert_large_{length}_a100_{precision}.json", *a100
            )
            seen = set()
            for row in dle_rows(data, bert, "A100-80GB", table, batch, "Pre-training"):
                gpus, steps = int(row["n_gpus"]), row["accumulation_steps"]
                if row["seq_len"] != str(length) or (gpus, steps, row["throughput"]) in seen:
                    continue
                seen.add((gpus, steps, row["throughput"]))
                sets = {"cluster.gpus": gpus, "training.accumulation_steps": int(steps)}
                scaling = " (scaling table)" if "Multi-node" in row["section"] else ""
                cases.append(
                    case(f"{name} {gpus} GPUs x {steps}{scaling}", name, "test" if gpus > 1 else "fit", sets,
                         batch * int(steps) * gpus / float(row["throughput"]))
                )  # fmt: skip
    write(
        "accumulation_bert.json", "accumulation", "BERT-large pre-training with 16 to 256 micro-steps",
        source.format(bert), "DGX A100 (8 A100), one and two nodes", scenarios, cases,
        bars={"mean_abs_error": 0.06},
    )  # fmt: skip


def mini_train_bench(data):
    scenarios = {"ddp": scenario(
        "A small transformer in DDP", "models/mini_transformer_a100_bf16.json", "dgx_a100.json",
        "dgx_a100.calibration.json", training={"micro_batch": 2},
    )}  # fmt: skip
    modes = {"auto": "no_sync", "every": "sync_every_micro_step"}
    cases = []
    for row in make_models.rows_of(data, "minitrainbench.csv"):
        if row["strategy"] != "ddp" or row["file"] == "results__stability_repeat3__ddp_1gpu.json":
            continue
        gpus, steps = int(row["n_gpus"]), int(row["grad_accum"])
        sets = {"cluster.gpus": gpus, "training.micro_batch": int(row["batch_per_gpu"])}
        if steps > 1:
            sets |= {"training.accumulation_steps": steps, "training.accumulation": modes[row["sync_mode"]]}
        name = row["file"].removeprefix("results__").removesuffix(".json")
        cases.append(case(name, "ddp", "fit" if gpus == 1 or (gpus, steps) == (2, 1) else "test", sets, float(row["step_ms"]) * 1e-3, 0.02))
    write(
        "accumulation_minitrainbench.json", "accumulation",
        "minitrainbench, a small transformer in DDP with and without no_sync",
        "minitrainbench, results/*.json: step_ms, PyTorch 2.10, NCCL 2.28.9; the noise is that of the three "
        "runs on 8 GPUs. Computation is that of another run on one GPU; what DDP takes of the host is fitted "
        "on 2 GPUs without accumulation.",
        "8 A100 SXM4 40 GB", scenarios, cases, bars={"mean_abs_error": 0.06},
        fit=[{"key": "training.host_per_kernel_s", "start": 1e-5, "low": 0, "high": 1e-3}],
    )  # fmt: skip


def traces(data):
    """Those of docs/traces.md that are plain data parallelism; they are imported when validated."""
    root = FOLDER.parents[1]
    page = (root / "docs/traces.md").read_text(encoding="utf-8")
    script = (root / "docs/make_traces.py").read_text(encoding="utf-8")
    settings = {}
    exec(script[script.index("HTA ="):script.index("def stepcast")], settings)  # TRACES
    imports, scenarios, cases = {}, {}, []
    for pattern, what, platform, calibration, gpus, sync, sets in settings["TRACES"]:
        row = re.search(rf"^\| `{re.escape(pattern)}`: .*?\| (\d+) \| ([\d.]+) \|", page, re.MULTILINE)
        files = sorted((data / "traces").glob(pattern))
        if not row or not files or "not plain data parallel" in row[0]:
            continue
        outside = "../../../shared/data"
        sets = {key: value.format(data=outside) for key, value in sets.items()}
        imports[what] = {
            "importer": "kineto",
            "files": [f"{outside}/{file.relative_to(data)}" for file in files],
            "set": {"micro_batch": "32"} | sets,
        }
        scenarios[what] = scenario(
            what, what, f"{platform}.json", calibration and f"{calibration}.calibration.json",
            training={"micro_batch": 32, "sync": sync},
        )  # fmt: skip
        scenarios[what]["cluster"] = {"gpus": gpus}
        cases.append(case(f"{what}, {gpus} GPUs", what, "test", {}, float(row[2]) * 1e-3))
    write(
        "traces.json", "traces", "Traces of torch.profiler, replayed on as many GPUs as they were recorded on",
        "traces of public repositories, named in docs/traces.md; measured is the median of the steps in the trace",
        "several: V100, A100, MI300X, RTX 2080 Ti", scenarios, cases, imports=imports,
        bars={"median_abs_error": 0.05},
    )  # fmt: skip


def hkbu_rows(data):
    return make_models.rows_of(data, "hkbu_ddl_benchmarks.csv")


def merge_cost(gpus, rate, alpha_s):
    """What MG-WFBP expects of a ring on n GPUs: 2 (n - 1) (alpha + S / n / B)."""
    return {
        "overhead_s": float(f"{2 * (gpus - 1) * alpha_s:.3g}"),
        "rate_Bps": float(f"{rate * gpus / (2 * (gpus - 1)):.3g}"),
    }


def hkbu(data):
    methods = {"BSP-A2A": "flat", "WFBP-A2A": "overlapped_per_tensor", "MG-WFBP": "merged"}
    models = {"ResNet-50": "resnet50", "BERT-Base": "bert_base", "BERT-Large": "bert_large"}
    # Rate and alpha of a NIC to start from: the line's, and TCP's or RDMA's usual latency.
    networks = {
        "10GbE with TCP/IP": ("10gbe", 1.1e9, 40e-6),
        "100GbE with TCP/IP": ("100gbe", 3e9, 40e-6),
        "100GbIB with RDMA": ("100gbib", 10e9, 12e-6),
    }
    for network, (file, rate, alpha_s) in networks.items():
        scenarios, cases, orders = {}, [], []
        for model, key in models.items():
            scenarios[model] = scenario(
                f"{model} on RTX 2080 Ti, {network}", f"models/{key}_2080ti_fp32.json", "hkbu_2080ti.json",
                training={"broadcast_buffers": False},
            )
            groups = {}
            for row in hkbu_rows(data):
                if (row["model"], row["network"]) != (model, network) or row["method"] not in methods:
                    continue
                gpus = int(row["n_gpus"])
                if gpus == 1:
                    continue  # the computation of the trace: says nothing
                name = f"{model} {row['method']} {gpus} GPUs"
                # Where there is nothing larger to predict, the overlapped methods at 8 are.
                largest = 8 if "IB" in network else 4
                fitted = gpus <= largest or (gpus == 8 and row["method"] == "BSP-A2A")
                noise = float(row["std"]) / float(row["throughput"]) if row["std"] else None
                sets = {"cluster.gpus": gpus, "training.sync": methods[row["method"]]}
                if sets["training.sync"] == "merged":
                    sets["training.merge_cost"] = merge_cost(
                        gpus, *((rate, alpha_s) if gpus > 4 else (9e9, 10e-6)))
                cases.append(case(name, model, "fit" if fitted else "test", sets, float(row["step_time_s"]), noise))
                groups.setdefault(gpus, []).append(name)
            orders += [names for gpus, names in groups.items() if gpus > largest]
        # The nodes are the same: TCP starts from what InfiniBand's cases for fitting told of them.
        pcie, slower = (9e9, (2.0, 1.1)) if "IB" in network else (6.6e9, (1.86, 1.0))
        figures = [
            ("platform.node.interconnect.bandwidth_Bps", pcie, 1e9, 16e9),
            ("platform.node.nics.bandwidth_Bps", rate, rate / 10, min(12.5e9, rate * 4)),
            ("interference.communication_factor", slower[0], 1.0, 4.0),
            ("interference.computation_factor", slower[1], 1.0, 2.0),
            ("platform.node.interconnect.alpha_s", 10e-6, 0, 1e-3),
            ("platform.node.nics.alpha_s", alpha_s, 0, 5e-3),
        ]
        tested = "16 and 32 GPUs from 4 and 8" if "IB" in network else (
            "overlapped methods on 8 GPUs, from 4 GPUs and from what does not overlap on 8")
        write(
            f"hkbu_{file}.json", "hkbu", f"HKBU's benchmark of distributed training, {network}: {tested}",
            "HKBU-HPML/ddl-benchmarks, arXiv:2005.13247, throughput with standard deviation; the rows that "
            "AllReduce: BSP-A2A (no overlap), WFBP-A2A (each tensor overlapped), MG-WFBP (merged tensors)",
            f"nodes of 4 RTX 2080 Ti on PCIe 3, {network}", scenarios, cases,
            fit=[{"key": k, "start": s, "low": low, "high": high} for k, s, low, high in figures],
            bars={"mean_abs_error": 0.10, "order_right": 0.9}, orders=orders,
        )  # fmt: skip


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: make_cases.py SHARED_DATA_DIR")
    data = Path(sys.argv[1])
    (FOLDER / "models").mkdir(exist_ok=True)
    add_models(make_models.Zoo(data, FOLDER / "models"))
    pytorch_ddp(data)
    deep_learning_examples(data)
    mini_train_bench(data)
    traces(data)
    hkbu(data)


if __name__ == "__main__":
    main()
