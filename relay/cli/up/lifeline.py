"""The lifeline: a process ends with the one that started it, however that ends, also by kill -9."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

STOP_S = 10.0  # for a process that is told to end; then it is killed

# The shell becomes the command, so the pid is the command's, and at no moment can a dying parent leave it behind.
# A child of the shell reads a pipe whose other end only the parent has: end of file means stop, told or killed. A
# process that was paused is continued, so that it hears of it. The reader is in the command's process group: for as
# long as it may signal the pid, nobody else is given it. It keeps neither the command's output nor a lock of it.
SCRIPT = """
stop_s=$1; shift
exec 3<&0 </dev/null
(
    read -r _ <&3
    kill -TERM $$; kill -CONT $$
    for _ in $(seq "$stop_s"); do
        for _ in 1 2 3 4 5; do kill -0 $$ || exit; sleep 0.2; done
    done
    kill -KILL $$
) >/dev/null 2>&1 &
exec "$@" 3<&-
"""


def with_lifeline(command: Sequence[str], stop_s: float = STOP_S) -> list[str]:
    """The command with a lifeline. It needs a pipe as standard input, and a session of its own."""
    return ["/bin/sh", "-c", SCRIPT, "sh", f"{stop_s:.0f}", *command]


@contextmanager
def lifeline() -> Iterator[int]:
    """The standard input of a command that is told to end when this ends."""
    end, held = os.pipe()
    try:
        yield end
    finally:
        os.close(held)
        os.close(end)


class Child(subprocess.Popen[Any]):
    """A process with a lifeline. Ctrl-C in the terminal does not reach it, and its standard input is empty."""

    def __init__(self, command: Sequence[str], **options: Any) -> None:
        super().__init__(with_lifeline(command), stdin=subprocess.PIPE, start_new_session=True, **options)

    def let_go(self) -> None:
        """Tells it to end, and returns at once."""
        assert self.stdin is not None
        self.stdin.close()

    def wait(self, timeout: float | None = None) -> int:
        code = super().wait(timeout)
        self.let_go()  # of the reader too
        return code
