"""What stands for many rounds of one caller's calls."""

ROUNDS = 15


def quickest(medians):
    """The least of the rounds' medians. Whoever is woken on another processor waits for two or three times as long, and the scheduler
    keeps to either for seconds: a median of all rounds would jump between the two, for us and for Redis."""
    return min(medians)
