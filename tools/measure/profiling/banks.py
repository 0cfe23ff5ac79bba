"""Which banks of shared memory each line of the source wants, as one warp was traced."""

import re
from collections import Counter
from dataclasses import dataclass

from tools.measure.profiling.launch import LANES

BANKS, WORD = 32, 4  # of so many bytes
NAMES = {"ld.shared": "load", "st.shared": "store"}


@dataclass(frozen=True)
class Access:
    """Of one line to one member, all requests together."""

    where: str
    op: str
    member: str
    words: tuple[int, ...]  # by bank: the most different words that a group of lanes wanted of it
    wavefronts: float  # of a request, on average
    ideal: float


def groups(event):
    """{bank: different words} of each group of lanes that the banks serve at a time. It wants 128 bytes at most: all lanes, if of 4 bytes
    or fewer, 16 of 8 bytes, 8 of 16. So it is with ldmatrix, where the group is a matrix."""
    size, offsets = event["bytes"], event["shared"]["offsets"]
    lanes = BANKS * WORD // max(size, WORD)
    for first in range(0, LANES, lanes):
        starts = [offset for offset in offsets[first : first + lanes] if offset is not None]
        words = {word for start in starts for word in range(start // WORD, (start + size - 1) // WORD + 1)}
        yield Counter(word % BANKS for word in words)


def by_line(events):
    """An Access for each line, kind of access and member, in the order of the source."""
    found = {}
    for event in events:
        member = re.sub(r"\[\d+\]", "", event["shared"]["first"].rpartition("::")[2])
        path, _, line = event["where"].rpartition(":")
        op = f"{NAMES.get(event['op'], event['op'])} {event['bytes']} B"
        found.setdefault((path, int(line), op, member), []).append(event)
    accesses = []
    for (path, line, op, member), same in sorted(found.items()):
        most = Counter()
        for event in same:
            for words in groups(event):
                most |= words  # of each bank the larger
        needed, ideal = (sum(event["shared"][name] for event in same) / len(same) for name in ("wavefronts", "wavefronts_ideal"))
        accesses.append(Access(f"{path.split('/')[-1]}:{line}", op, member, tuple(most[bank] for bank in range(BANKS)), needed, ideal))
    return tuple(accesses)


def panels(launches):
    """{(kernel, its accesses): variants}: a kernel that several variants launch is there once, unless its warps differ."""
    found = {}
    for launch in launches:
        if launch.shared:
            found.setdefault((launch.kernel, by_line(launch.shared)), []).append(launch.variant)
    return found
