"""How quick the machine is right now, so that a bound on work is a bound on the code and not on the machine."""

import gc
import json
import time

TEXT = "[" + "[]," * 350_000 + "1]"
USUAL_S = 0.012  # what reading TEXT takes on the machine on which the bounds were chosen


def reading_s(text: str = TEXT) -> float:
    """The processor time to read a text as plain JSON: the interpreter's speed and that of new memory, together."""
    was_collecting = gc.isenabled()
    gc.disable()
    began = time.process_time()
    json.loads(text)
    took_s = time.process_time() - began
    if was_collecting:
        gc.enable()
    return took_s


def slowness() -> float:
    """How many times slower than usual the machine is, at least 1."""
    return max(1.0, max(reading_s() for _ in range(3)) / USUAL_S)
