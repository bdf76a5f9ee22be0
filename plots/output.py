"""Files that are written whole or not at all, and never over what is read."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from inputs import NotAResult


def refuse_inputs(output: Path, inputs: Sequence[Path]) -> None:
    if output.exists() and any(path.exists() and output.samefile(path) for path in inputs):
        raise NotAResult(f"{output} is an input of this command")


def write_whole(output: Path, write: Callable[[Path], None]) -> None:
    """`write` gets the path to write to: a neighbour that then takes the place of the file, or of the one that a link
    leads to; of what is no regular file (a device, a pipe) itself, for that must stay."""
    if output.exists() and not output.is_file():
        write(output)
        return
    target = Path(os.path.realpath(output))
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
