/* What reads cost, for the server's plans, in its unit of today: the read of one block. (Servers from 11.0
   on ask for times of rows, keys and lookups instead: this file is what is to be written anew for them.)

   Rows lie in the leaves of the primary key. Reading a range of it costs its share of the whole; each row
   that an entry of another index names costs a search. So with InnoDB. */
#include "ha_evenkeel.h"

/* Any index may be read from end to end for its order: rows in that of the primary key need no sort. */
const key_map *ha_evenkeel::keys_to_use_for_scanning() { return &key_map_full; }

double ha_evenkeel::scan_time()
{
  return (double) stats.data_file_length / COST_BLOCK_BYTES + 1;
}

double ha_evenkeel::read_time(uint index, uint ranges, ha_rows rows)
{
  if (!is_clustered(index))
    return handler::read_time(index, ranges, rows);
  /* A search or two. */
  if (rows <= 2)
    return (double) rows;
  /* Of a partitioned table one partition is asked for all: there may be more rows than it has. */
  return ranges + (double) rows / (double) MY_MAX(stats.records, 1) * scan_time();
}
