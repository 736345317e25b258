"""How even a rate was: its worst second, and the rule by which the control excuses one."""

import statistics

from row import CONTROL, OURS, row

# Of a run: seconds left out at its start, where caches and memtables fill, and the fewest that tell.
WARM_UP_S, SECONDS_MIN = 5, 20
# What a bar of evenness wants: so long a run, so many rounds.
BAR_SECONDS, BAR_ROUNDS = 300, 3
CONTROL_PART, OWN_WAITS_MAX = 0.95, 0.05


def counted(per_second):
    """All whole seconds but the first five and the last; none of a run that is too short."""
    return per_second[WARM_UP_S:-1] if len(per_second) >= SECONDS_MIN else []


def ratios(per_second):
    """The worst and the 5th-percentile second / median; None of a run that is too short."""
    seconds = sorted(counted(per_second))
    middle = statistics.median(seconds) if seconds else 0
    if not middle:
        return {"worst": None, "p5": None}
    return {"worst": seconds[0] / middle, "p5": seconds[max(-(-len(seconds) // 20) - 1, 0)] / middle}


def below(per_second, asked):
    """The numbers of the counted seconds that are below a part of their median."""
    seconds = counted(per_second)
    least = asked * statistics.median(seconds) if seconds else 0
    return [WARM_UP_S + i for i, rate in enumerate(seconds) if rate < least]


def middle(rounds, key):
    """Medians over the rounds, by engine; figures that are None are left out."""
    engines = {engine: None for found in rounds for engine in found}
    values = {engine: [found[engine][key] for found in rounds
                       if found.get(engine, {}).get(key) is not None] for engine in engines}
    return {engine: statistics.median(of) for engine, of in values.items() if of}


def errors(rounds):
    """Ignored errors and reconnects by engine, of all rounds."""
    return {engine: sum(found.get(engine, {}).get("errors", 0) for found in rounds)
            for engine in (rounds[0] if rounds else ())}


def even(bar, what, asked, rounds, seconds=BAR_SECONDS):
    """Met if ours is at least what is asked; or at least 0.95 of the control's, and in no second
    below what is asked did our own causes (`own`) take more than 5 % of the clients' time."""
    values, own = middle(rounds, "worst"), middle(rounds, "own").get(OURS)
    ours, control = values.get(OURS), values.get(CONTROL)
    limit = min(asked, CONTROL_PART * control) if control is not None else asked
    note = f"{asked:.2f} or {CONTROL_PART} x control"
    if own is not None:
        note += f"; own waits {own:.1%} of the clients' time in the worst of the seconds below it"
    long_enough = seconds >= BAR_SECONDS and len(rounds) >= BAR_ROUNDS
    if not long_enough:
        note += f"; too short to count: {seconds} s x {len(rounds)}, of {BAR_SECONDS} s x {BAR_ROUNDS}"
    return row(bar, what, "", values, limit=limit, note=note, errors=errors(rounds),
               also=ours is None or ours >= asked or own is None or own <= OWN_WAITS_MAX,
               counts=long_enough)


def longest(bar, what, limit, rounds):
    """The longest operation. One of which a single wait for the device (`device_ms`) may have been
    more than half cannot be held against the engine, nor the next longest be known."""
    values, device = middle(rounds, "longest"), middle(rounds, "device_ms").get(OURS, 0.0)
    ours = values.get(OURS)
    slow = ours is not None and ours > limit and device > ours / 2
    note = f"device slow: a single wait for it took {device:.0f} ms" if slow else ""
    return row(bar, what, "ms", values, None, True, limit=limit, note=note, errors=errors(rounds),
               counts=not slow)
