/* Costs of reads for the server's optimizer, in the unit of this server: the read of one block. (Servers from 11.0
   on ask for times of rows, keys and lookups instead; this file is the one to write anew for them.)
   Rows are stored in the leaves of the primary key. A read of a range of it costs the range's share of the whole.
   Each row that an entry of another index names costs one search, as in InnoDB. */
#include "ha_evenkeel.h"

/* Any index may be read from end to end for its order; for the order of the primary key rows need no sort. */
const key_map *ha_evenkeel::keys_to_use_for_scanning() { return &key_map_full; }

double ha_evenkeel::scan_time()
{
  return (double) m_leaf_bytes / COST_BLOCK_BYTES + 1;
}

double ha_evenkeel::read_time(uint index, uint ranges, ha_rows rows)
{
  if (!is_clustered(index))
    return handler::read_time(index, ranges, rows);
  /* One or two searches. */
  if (rows <= 2)
    return (double) rows;
  /* The optimizer asks one partition for the rows of the whole table, so there may be more rows than the partition
     has. */
  return ranges + (double) rows / (double) MY_MAX(stats.records, 1) * scan_time();
}
