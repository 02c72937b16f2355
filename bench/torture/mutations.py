"""Is the checker awake? Each safeguard is switched off in a copy of the relay, and the torture must notice.

`python -m bench.torture.mutations [NAME …]`
"""

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

import relay
from bench.torture.main import Outcome, torture

PACKAGES = ("relay", "workers", "bench")  # the command line is relay.cli, which knows the others
SECONDS = {"mixed": 20.0, "regress": 36.0}  # by variant
RECHECKING = "relay/core/presence/recheck.py"
SEEDS = range(1, 6)  # a fault may just miss its moment: the first seed that notices is enough


@dataclass(frozen=True, slots=True)
class Edit:
    """One place in the code."""

    path: str
    safe: str
    unsafe: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """One safeguard, switched off."""

    name: str
    edits: tuple[Edit, ...]
    variant: str = "mixed"  # of the run that must notice

    def apply(self, code: Path) -> None:
        """Raises ValueError if the safeguard is not where it was."""
        for edit in self.edits:
            text = (code / edit.path).read_text()
            if text.count(edit.safe) != 1:
                raise ValueError(f"{edit.path} has {edit.safe!r} {text.count(edit.safe)} times, not once")
            (code / edit.path).write_text(text.replace(edit.safe, edit.unsafe))


OWNER_CHECK = Mutation(  # what is settled with a lease that has ended, or by a session that was replaced, counts
    "owner check",
    (
        Edit(
            "relay/store/scripts/lib/holding.lua",
            "  if not row or attempt ~= 0 and attempt ~= row[4] then return nil, 'lock_lost' end\n",
            "  row = row or pending(box, id, id, 1)[1]\n  if not row then return nil, 'lock_lost' end\n",
        ),
        Edit(
            "relay/store/scripts/mailbox/ack.lua",
            "    owned[id] = owned[id] or pending(box, id, id, 1, session)[1]\n",
            "    owned[id] = owned[id] or pending(box, id, id, 1)[1]\n",
        ),
        Edit(
            "relay/store/scripts/mailbox/ack.lua",
            "      if row and fields and (attempt == 0 or attempt == row[4]) then\n",
            "      if row and fields then\n",
        ),
        Edit(
            "relay/store/scripts/mailbox/ack_plain.lua",
            "  if uses_lanes[m] or not is_held(box, ARGV[SESSION + m], first, i) then others[#others + 1] = m end\n",
            "  if uses_lanes[m] then others[#others + 1] = m end\n",
        ),
    ),
)
RECHECK = Mutation(  # what no wake told of is never looked for
    "re-check",
    (
        Edit(
            "relay/core/presence/recheck.py",
            "            if has_mail and pushed_to in by_name:\n",
            "            if False:\n",
        ),
        Edit("relay/core/presence/recheck.py", "            elif has_mail:\n", "            elif False:\n"),
    ),
)
DEDUP_KEY = Mutation(  # a message that is sent again is stored again
    "dedup key",
    (
        Edit(
            "relay/store/scripts/mailbox/accept.lua",
            "    if not entry then entry, how, attempt = ended_lately(i) end\n",
            "    entry = nil\n",
        ),
        Edit(
            "relay/store/scripts/mailbox/accept_plain.lua",
            "    if here[i] or gone[i] or gone_before[i] then return false end\n",
            "\n",
        ),
    ),
)
RECEIPT_OUTBOX = Mutation(  # what an instance could not forward nobody forwards
    "receipt outbox",
    (
        Edit(
            "workers/receipts.py",
            "            await store.receipts.left_behind(shard, entry, fields)\n",
            "            pass\n",
        ),
    ),
)
TAKEOVER = Mutation(  # what a replaced session held stays with it
    "takeover",
    (
        Edit(
            "relay/store/scripts/agents/join.lua",
            "    release_all(address, box, tonumber(string.sub(priorities, n, n)), other, 'replaced')\n",
            "\n",
        ),
    ),
)
CREDITS = Mutation(  # a session is pushed more than its window has room for
    "credits",
    (
        Edit(
            "relay/store/scripts/mailbox/accept_plain.lua",
            "  local past = math.min(final, first + credits - 1)\n",
            "  local past = final\n",
        ),
    ),
)
WITNESS = Mutation(  # nobody looks whether the store has what it promised
    "witness",
    (
        Edit(
            "relay/store/redis/servers/master.py",
            "            self.doubted.update(self._switchboard.shards_of(self))\n",
            "            pass\n",
        ),
    ),
    variant="regress",
)
NEW_NUMBERS = Mutation(  # threads of a shard that has gone back go on where it believes them to be
    "new numbers",
    (
        Edit(
            "relay/store/scripts/lib/numbering.lua",
            "  return regressed and GENERATION * string.match(regressed, '^%d+') or 0\n",
            "  return 0\n",
        ),
    ),
    variant="regress",
)
GHOSTS = Mutation(  # a session that the store believes in again is left there
    "ghosts",
    (
        Edit(
            "relay/core/presence/ghosts.py",
            "            self._sessions.is_name_of_ours(name)\n",
            "            False\n",
        ),
    ),
    variant="regress",
)
MUTATIONS = (OWNER_CHECK, RECHECK, DEDUP_KEY, RECEIPT_OUTBOX, TAKEOVER, CREDITS, WITNESS, NEW_NUMBERS, GHOSTS)


def mutated(mutation: Mutation, folder: Path) -> Path:
    """A copy of the relay without this safeguard."""
    source, code = Path(relay.__file__).parents[1], folder / "code"
    for package in PACKAGES:
        shutil.copytree(source / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    mutation.apply(code)
    return code


def try_out(mutation: Mutation, seed: int, console: Console) -> Outcome:
    """The torture of a relay without this safeguard."""
    with tempfile.TemporaryDirectory(prefix="relay-mutation-") as name:
        folder = Path(name)
        code, variant = mutated(mutation, folder), mutation.variant
        return torture("single", seed, SECONDS[variant], folder, console, code, variant)


def is_caught(mutation: Mutation, console: Console) -> bool:
    for seed in SEEDS:
        with Path("/dev/null").open("w") as nowhere:
            outcome = try_out(mutation, seed, Console(file=nowhere))
        promises = sorted({breach.promise for breach in outcome.breaches})
        console.print(f"{mutation.name}: seed {seed}: {', '.join(promises) or 'not noticed'}", highlight=False)
        if promises:
            return True
    return False


def main(names: list[str]) -> int:
    console = Console()
    known = [mutation.name for mutation in MUTATIONS]
    if unknown := set(names) - set(known):
        console.print(f"no such safeguard: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    chosen = [mutation for mutation in MUTATIONS if not names or mutation.name in names]
    missed = [mutation.name for mutation in chosen if not is_caught(mutation, console)]
    console.print(f"not noticed: {', '.join(missed)}" if missed else f"all {len(chosen)} are noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
