"""The result as text and as one HTML page that needs nothing else."""

import html as escape

from row import CONTROL, OURS, PEERS

ENGINES = (*PEERS, OURS)
SHOWN = {"ROCKSDB": "MyRocks"}
COLOURS = {"InnoDB": "#b4560c", "ROCKSDB": "#5b8c2a", "EVENKEEL": "#0b6e99"}


def called(engine):
    return SHOWN.get(engine, engine)


def shown(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def asked(row):
    sign = "<=" if row["less_is_better"] else ">="
    found = [f"{sign} {least:.2f} x {called(peer)}" for peer, least in row["wanted"].items()]
    if row["limit"] is not None:
        found.append(f"{sign} {shown(row['limit'])} {row['unit']}".rstrip())
    return ", ".join(found)


def met(row):
    return {True: "met", False: "MISSED", None: "-"}[row["met"]]


def verdict(row):
    if not asked(row):
        return row["note"]
    return f"{asked(row)}: {met(row)}" + (f" ({row['note']})" if row["note"] else "")


def line(row):
    """A figure, what is asked and whether that holds, as scripts/bars.py has them."""
    values = ", ".join(f"{called(e)} {shown(row['values'][e])}" for e in (OURS, *PEERS, CONTROL)
                       if row["values"].get(e) is not None)
    note = f" ({row['note']})" if row["note"] else ""
    return f"{row['bar']:4} {met(row):7} {row['what']}: {values or '-'} {row['unit']}".rstrip() + (
        f"; asked: {asked(row) or 'nothing'}{note}")


def fields(row):
    values = [shown(row["values"].get(engine)) for engine in (*ENGINES, CONTROL)]
    ratios = [f"{row['ratios'][p]:.2f}" if p in row["ratios"] else "-" for p in PEERS]
    return [row["bar"], row["what"], row["unit"], *values, *ratios, verdict(row)]


HEAD = ["bar", "what", "unit", *(called(engine) for engine in ENGINES), CONTROL,
        *(f"/ {called(peer)}" for peer in PEERS), "wanted"]


def text(result):
    lines = [HEAD] + [fields(row) for row in result["rows"]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(f.ljust(w) for f, w in zip(line, widths)).rstrip() for line in lines)


def curves(row):
    """Transactions of each second of the last round, one line per engine."""
    runs = row.get("runs")
    if not runs:
        return ""
    series = {e: r[-1]["per_second"] for e, r in runs.items() if r and r[-1].get("per_second")}
    top = max((max(s) for s in series.values() if s), default=0)
    if not top:
        return ""
    width, height = 640, 160
    lines = []
    for engine, seconds in series.items():
        step = width / max(len(seconds) - 1, 1)
        points = " ".join(f"{i * step:.1f},{height - v / top * (height - 10):.1f}"
                          for i, v in enumerate(seconds))
        lines.append(f'<polyline fill="none" stroke="{COLOURS[engine]}" stroke-width="2" '
                     f'points="{points}"><title>{called(engine)}</title></polyline>')
    name = escape.escape(f"{row['bar']} {row['what']}")
    legend = ", ".join(f'<span style="color:{COLOURS[e]}">{called(e)}</span>' for e in series)
    return (f"<figure><figcaption>{name}: {row['unit']} each second, up to {top:,.0f}; {legend}"
            f'</figcaption><svg viewBox="0 0 {width} {height}" role="img" aria-label="{name}">'
            + "".join(lines) + "</svg></figure>")


def html(result):
    cell = lambda tag, field: f"<{tag}>{escape.escape(field)}</{tag}>"
    body = []
    for row in result["rows"]:
        colour = {True: "met", False: "missed", None: ""}[row["met"]]
        body.append(f'<tr class="{colour}">' + "".join(cell("td", f) for f in fields(row)) + "</tr>")
    head = "".join(cell("th", f) for f in HEAD)
    length = f"{result['seconds']} s" if result["seconds"] else "as long as the bars say"
    sizes = (f"{result['cores']} cores, scale {result['scale']}, {length} a run, "
             f"{result['rounds']} rounds")
    without = result["without_rocksdb"]
    without = f" MyRocks takes no part: {without}" if without else ""
    options = "".join(f"<h2>{called(e)}</h2><pre>{escape.escape(chr(10).join(o))}</pre>"
                      for e, o in result["options"].items())
    return f"""<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>EVENKEEL beside InnoDB and MyRocks</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
table {{ border-collapse: collapse; display: block; overflow-x: auto }}
td, th {{ padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: left }}
.met td:last-child {{ color: #11702d }} .missed td:last-child {{ color: #a11212 }}
svg {{ width: 100%; background: #f7f7f7 }} figure {{ margin: 1.5rem 0 }}
</style><h1>EVENKEEL beside InnoDB and MyRocks</h1><p>{escape.escape(sizes)}. A ratio is ours divided by the other
engine's.{escape.escape(without)}</p>
<table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>
{"".join(curves(row) for row in result["rows"])}
<details><summary>Options of the servers</summary>{options}</details></html>
"""
