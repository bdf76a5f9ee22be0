"""When the compute stream of a rank is blocked, as far as a result tells.

A result tells when each collective runs, and of the compute stream how long it computes and waits,
not when. So the stream is blocked where it must be: while the first collectives broadcast buffers,
and from the last gradient to the end of the last collective or, if that fits the split better, from
the gradients of each collective to its end.
"""

from collections.abc import Sequence

from inputs import Json

Span = tuple[float, float]


def union(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1] + 1e-9:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def blocked_spans(point: Json) -> list[Span]:
    """Where the compute stream must wait, in seconds from the start of the step."""
    spans = []
    front = 0.0
    for bucket in point["buckets"]:
        if bucket["operation"] != "broadcast" or bucket["start_s"] > front + 1e-9:
            break
        front = max(front, bucket["end_s"])
    if front > 0.0:
        spans.append((0.0, front))
    gradients = [bucket for bucket in point["buckets"] if bucket["operation"] == "all_reduce"]
    if not gradients:
        return spans
    last = max(bucket["ready_s"] for bucket in gradients)
    overlapped = union([*spans, (max(last, front), max(bucket["end_s"] for bucket in gradients))])
    one_by_one = union([*spans, *((bucket["ready_s"], bucket["end_s"]) for bucket in gradients)])
    blocked_s = point["split"]["exposed_comm_s"] + point["split"]["wait_s"]
    return min(overlapped, one_by_one, key=lambda some: abs(length(some) - blocked_s))
