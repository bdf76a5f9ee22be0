"""Draws step time and share of communication over the chunk size or the size of the buckets."""

import sys

from inputs import Inputs
from matplotlib.figure import Figure
from over_setting import draw_over

from style import main

AXES = {
    "collective.chunk_bytes": "chunk size [B]",
    "training.bucket_cap_bytes": "largest bucket of gradients [B]",
}


def draw(inputs: Inputs) -> Figure:
    return draw_over(inputs, list(AXES), AXES)


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
