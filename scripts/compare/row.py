"""A row of the result: a figure of each engine and what a bar asks of ours."""

OURS = "EVENKEEL"
PEERS = ("InnoDB", "ROCKSDB")
# `evenkeel bench --engine null` in the place of a server: see control.py.
CONTROL = "control"


def row(bar, what, unit, values, wanted=None, less_is_better=False, note="", limit=None, errors=None,
        also=True, counts=True):
    """`values`: by engine. `wanted`: the least (or greatest) ratio of ours to InnoDB's, or ratios by
    peer; `limit`: the least (or greatest) value of ours. `errors`: by engine, of runs that counted
    none of them; a ratio to or of an engine that had any does not count. `also`: what else has to
    hold; `counts` is off where the run cannot tell."""
    wanted = {"InnoDB": wanted} if isinstance(wanted, (int, float)) else wanted or {}
    errors = {engine: count for engine, count in (errors or {}).items() if count}
    ours = values.get(OURS)
    ratios = {peer: ours / values[peer] for peer in PEERS
              if ours is not None and values.get(peer)}
    within = lambda value, least: value <= least if less_is_better else value >= least
    verdicts = [within(ratios[peer], least) for peer, least in wanted.items()
                if peer in ratios and peer not in errors]
    if limit is not None and ours is not None:
        verdicts.append(within(ours, limit))
    met = all(verdicts) and also if verdicts and counts and OURS not in errors else None
    if errors:
        of = ", ".join(f"{engine} {count}" for engine, count in errors.items())
        note = f"{note}; " * bool(note) + f"ignored errors or reconnects ({of}): does not count"
    missing = [peer for peer in wanted if values.get(peer) is None]
    if missing and ours is not None:
        note = f"{note}; " * bool(note) + f"no figure of {', '.join(missing)}"
    return {"bar": bar, "what": what, "unit": unit, "values": values, "ratios": ratios,
            "wanted": wanted, "limit": limit, "less_is_better": less_is_better, "met": met,
            "note": note}
