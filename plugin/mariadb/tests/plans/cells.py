"""Which cells (access path x kind of column x partitioned) there are, and which the server cannot take."""
from plans.queries import RECIPES
from plans.run import LEVELS
from plans.schema import GENERATED, KINDS, LOBS, is_prefix

MODES = [("calm", level) for level in LEVELS] + [("beside", level) for level in LEVELS[:3]] + [("own", LEVELS[2])]
MODES += [(mode, LEVELS[2] + lock) for mode in ("calm", "own") for lock in (" for update", " lock in share mode")]
# By which a partitioned table is read with PARTITION (..), and first after FLUSH TABLES.
PARTITIONED = "all ref range index index_only mrr union sort_union intersect sort_intersect join_ref bka bkah group".split()
# By which statements change rows.
ONE = "all range union sort_union intersect sort_intersect".split()
TWO = "all join_ref eq_ref".split()  # the server uses no join buffer for them

def excluded(path, kind, partitioned):
    """Why the server cannot take the cell, or None."""
    if partitioned and kind == "geometry_prefix":
        return "partitioned tables have no geometry"
    if partitioned and path in ("rowid_filter", "filtered"):
        return "partitioned tables take no rowid filter"
    if partitioned and path == "icp":
        return "partitioned tables take no index condition but with batched key access"
    if is_prefix(kind) and path in ("union", "intersect"):
        return "rows of one prefix are in no order that the server merges by"
    if is_prefix(kind) and path in ("mrr", "bka", "bkah", "icp_bka", "mrr_by_key"):
        return "the server takes no key with a prefix for several ranges at once"
    if is_prefix(kind) and path == "loosescan":
        return "a prefix does not hold what the subquery gives"
    if kind == "geometry_prefix" and path == "lateral":
        return "joined to a derived table by its key any geometry equals any other (10.11.18, InnoDB alike)"
    if kind in LOBS and path in ("sj_materialization", "materialization", "derived_keys"):
        return "temporary tables have no keys of blobs"
    return None

def every():
    return [(path, kind, partitioned) for partitioned in (False, True) for path in RECIPES for kind in KINDS
            if not excluded(path, kind, partitioned)]

def left_out():
    cells = [(path, kind, partitioned) for partitioned in (False, True) for path in RECIPES for kind in KINDS]
    return [(*cell, excluded(*cell)) for cell in cells if excluded(*cell)]

def changes():
    """(verb, path, partitioned) of statements that change rows."""
    # A DELETE of one table takes no hints: it is only known to read the table.
    ones = [(verb, path) for verb in ("update", "delete of x") for path in ONE] + [("delete", "all")]
    twos = [(verb, path) for verb in ("update of both", "delete of both") for path in TWO]
    return [(*change, partitioned) for change in ones + twos for partitioned in (False, True)]

def missing(noted):
    return [cell for cell in every() if not noted.cells[cell]]
