"""Which access paths a plan takes, read from the server's EXPLAIN FORMAT=JSON."""
import json
import re

JOINS = {"BNL": "bnl", "BNLH": "bnlh", "BKA": "bka", "BKAH": "bkah"}

class Taken:
    """One table read in a plan."""
    def __init__(self, alias, path, columns):
        self.alias, self.path, self.columns = alias, path, columns  # None: those that the query is made for

def walk(node, around=()):
    """Every table of the plan with the nodes it lies in."""
    if isinstance(node, list):
        for part in node:
            yield from walk(part, around)
    elif isinstance(node, dict):
        for name, part in node.items():
            if name == "table" and isinstance(part, dict):
                yield part, around, node
            yield from walk(part, around + ((name, part),))

def merges(node, out):
    """[(kind of merge, index ranges)] of an index merge, inner ones too."""
    for name, part in node.items():
        if name.rstrip("'") in ("union", "sort_union", "intersect", "sort_intersect"):
            parts = part if isinstance(part, list) else [part]
            out.append((name.rstrip("'"), [r for p in parts for r in ranges(p)]))
            for inner in parts:
                merges(inner, out)
    return out

def ranges(node):
    """The index ranges below a node."""
    out = []
    for name, part in node.items():
        if name.rstrip("'") == "range":
            out.append(part)
        else:
            for inner in part if isinstance(part, list) else [part]:
                out += ranges(inner) if isinstance(inner, dict) else []
    return out

def pairs(items):
    """An object whose names may come again: those get a mark."""
    out = {}
    for name, value in items:
        while name in out:
            name += "'"
        out[name] = value
    return out

def of_table(node, keys):
    """The paths by which a table is read, with the columns of the keys used."""
    kind, alias, key = node.get("access_type"), node.get("table_name"), node.get("key")
    used = node.get("used_key_parts")
    full = keys.get(key, used)
    # What EXPLAIN says of the parts used is cut by the length of another key.
    out = [(name, [c for part in parts for c in keys.get(part["key"], [])])
           for name, parts in merges(node.get("index_merge", {}), [])]
    if kind == "ALL":
        out.append(("all", None))
    elif kind in ("const", "eq_ref", "ref_or_null", "range", "index", "index_subquery", "unique_subquery"):
        out.append((kind, used))
    elif kind == "ref":
        out.append(("ref" if all(r == "const" for r in node.get("ref", [])) else "join_ref", used))
    if node.get("using_index") and kind != "index_merge" and key in keys:
        out.append(("index_only", full))
    out += [(path, used) for path, name in (("icp", "index_condition"), ("icp_bka", "index_condition_bka")) if name in node]
    if node.get("mrr_type"):
        out.append(("mrr", used))
    if "rowid_filter" in node:
        out += [("rowid_filter", part.get("used_key_parts", [])) for part in ranges(node["rowid_filter"])]
        out.append(("filtered", used))
    if node.get("using_index_for_group_by"):
        out.append(("group", full))
    if "first_match" in node:
        out.append(("firstmatch", None))
    if node.get("loose_scan"):
        out.append(("loosescan", used))
    return [Taken(alias, path, columns) for path, columns in out]

def taken(text, keys):
    """What a plan takes. `keys` has the columns of each key of the tables."""
    # Values stand in conditions as they are, with quotes that are not escaped.
    text = re.sub(r'"(\w*condition\w*|sort_key|state)": ".*?"(?=,?\n\s*["}\]])', r'"\1": ""', text, flags=re.S)
    plan, out = json.loads(text, object_pairs_hook=pairs, strict=False), []
    for node, around, holder in walk(plan):
        out += of_table(node, keys)
        alias = node.get("table_name", "")
        if "join_type" in holder:
            joined = JOINS.get(holder["join_type"])
            key = node.get("used_key_parts") if joined in ("bka", "bkah") else None
            if joined:
                out.append(Taken(alias, joined, key))
            if "Key-ordered" in holder.get("mrr_type", ""):
                out.append(Taken(alias, "mrr_by_key", key))
        names = [name for name, _ in around]
        if names and names[-1] == "range-checked-for-each-record":
            out.append(Taken(alias, "range_checked", None))
        if "duplicates_removal" in names:
            out.append(Taken(alias, "weedout", None))
        if alias.startswith("<subquery"):
            out.append(Taken("y", "sj_materialization", None))
        if alias.startswith("<derived") and str(node.get("key", "")).startswith("key"):
            out.append(Taken("y", "derived_keys", None))
        if node.get("materialized", {}).get("lateral"):
            out.append(Taken("y", "lateral", None))
        if "materialization" in names:
            out.append(Taken("y", "materialization", None))
    return out
