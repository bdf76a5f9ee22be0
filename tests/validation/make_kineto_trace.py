#!/usr/bin/env python3
"""Writes a made-up trace of torch.profiler of any length, to see what importing one costs.

    python3 tests/validation/make_kineto_trace.py EVENTS > trace.json
    /usr/bin/time -v build/release/stepcast import kineto trace.json -o /dev/null
"""

import sys

LAYERS = 100  # operators of each pass of a step
STEP = 2 * LAYERS * 3 + LAYERS * 3  # operator, launch and kernel; the same for AccumulateGrads


def main():
    steps = max(4, int(sys.argv[1]) // STEP)
    write = sys.stdout.write
    write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "made up"}],\n'
          '"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},\n"traceEvents": [\n')
    correlation, us = 0, 1_711_964_646_000_000.0

    def launch(thread, name, dims, tid_us):
        nonlocal correlation
        correlation += 1
        write(f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1000, "tid": {thread}, "ts": {tid_us:.3f}, '
              f'"dur": 9.0, "args": {{"External id": {correlation}, "Record function id": 0, '
              f'"Sequence number": {correlation}, "Input Dims": {dims}, "Ev Idx": {correlation}}}}},\n'
              f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1000, "tid": {thread}, '
              f'"ts": {tid_us + 2:.3f}, "dur": 4.5, "args": {{"External id": {correlation}, "cbid": 211, '
              f'"correlation": {correlation}}}}},\n'
              '{"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, '
              'at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, '
              f'at::detail::Array<char*, 3>)", "pid": 0, "tid": 7, "ts": {tid_us + 8:.3f}, "dur": 8.125, "args": '
              f'{{"External id": {correlation}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": '
              f'{correlation}, "registers per thread": 16, "shared memory": 0, "blocks per SM": 0.5, "warps per SM": 2.0, '
              '"grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 3}},\n')

    for step in range(steps):
        begin = us
        for _ in range(LAYERS):
            launch(1000, "aten::linear", "[[32, 256], [256, 256], [256]]", us)
            us += 10
        for _ in range(LAYERS):
            launch(1001, "autograd::engine::evaluate_function: AddmmBackward0", "[[32, 256]]", us)
            us += 10
            launch(1001, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "[[256, 256]]", us)
            us += 10
        write(f'{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 1000, "tid": 1000, '
              f'"ts": {begin:.3f}, "dur": {us - begin:.3f}, "args": {{}}}},\n')
    write('{"ph": "M", "name": "process_name", "pid": 1000, "tid": 0, "args": {"name": "python"}}\n]}\n')


if __name__ == "__main__":
    main()
