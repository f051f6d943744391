"""How figures are made and printed."""

import itertools, statistics

KIB = 1024
MIB = KIB * KIB


def at(share, of):
    """The value below which this share of the values lies."""
    of = sorted(of)
    return of[min(int(share * len(of)), len(of) - 1)]


def size(bytes):
    """In words."""
    return "1 MiB" if bytes == MIB else f"{bytes} bytes"


def in_turn(of, rounds):
    """All of them in each round, each time beginning with another one."""
    of = list(of)
    return itertools.chain.from_iterable(of[first:] + of[:first] for first in (number % len(of) for number in range(rounds)))


def ratio(ours, theirs):
    """The median of the rounds' ratios, as the machine's speed drifts; none without rounds."""
    pairs = [one / other for one, other in zip(ours, theirs) if other]
    return statistics.median(pairs) if pairs else None


def row(*cells):
    """A row of a Markdown table."""
    print("|", " | ".join(cells), "|", flush=True)


def head(*cells):
    """The first two rows of a Markdown table."""
    row(*cells)
    row(*["---"] * len(cells))
