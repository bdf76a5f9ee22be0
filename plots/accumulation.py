"""Draws step time and share of communication over the number of accumulation steps."""

import sys

from inputs import Inputs
from matplotlib.figure import Figure
from over_setting import draw_over

from style import main

KEY = "training.accumulation_steps"


def draw(inputs: Inputs) -> Figure:
    return draw_over(inputs, [KEY], {KEY: "accumulation steps [micro-steps in a step]"})


if __name__ == "__main__":
    sys.exit(main(draw, __doc__))
