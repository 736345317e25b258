/* Work that the server hands down: conditions on index entries, rowid filters, batches of ranges; and figures for
   ANALYZE. */
#include "ha_evenkeel.h"
#include "fault_injection.h"

/* An entry has prefixes only as weights, so its record lacks their columns. */
static bool has_prefix(const KEY &key)
{
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    if (key.key_part[i].key_part_flag & HA_PART_KEY_SEG)
      return true;
  return false;
}

Item *ha_evenkeel::idx_cond_push(uint index, Item *condition)
{
  /* The clustered key has whole rows at hand, so a condition on entries saves nothing. */
  if (is_clustered(index))
    return condition;
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  in_range_check_pushed_down= !has_prefix(table->key_info[index]);
  return nullptr;
}

bool ha_evenkeel::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

/* True if the server checks entries of the active index before their rows are read. */
bool ha_evenkeel::filters_entries() const
{
  if (active_index >= MAX_KEY || is_clustered(active_index))
    return false;
  return (pushed_idx_cond && pushed_idx_cond_keyno == active_index) ||
         (pushed_rowid_filter && rowid_filter_is_active);
}

/* Asks the server about the entry in `m_row`: 0, or the reason why the scan ends. */
int ha_evenkeel::check_entry(uchar *record, bool *wanted)
{
  *wanted= false;
  const int error= fill(record, m_row, true);
  return error ? error : ask_of_entry(wanted);
}

/* The same of an entry that is in the record. */
int ha_evenkeel::ask_of_entry(bool *wanted)
{
  *wanted= false;
  /* The server's checks compare the record with the range's end; without the columns of prefixes that
     waits for the row. */
  key_range *const range_end= end_range;
  if (range_end && has_prefix(table->key_info[active_index]))
    end_range= nullptr;
  check_result_t result= CHECK_POS;
  if (pushed_idx_cond && pushed_idx_cond_keyno == active_index)
    result= handler_index_cond_check(this);
  if (result == CHECK_POS && pushed_rowid_filter && rowid_filter_is_active)
    result= handler_rowid_filter_check(this);
  end_range= range_end;
  switch (result)
  {
  case CHECK_NEG: return 0;
  case CHECK_POS: *wanted= true; return 0;
  case CHECK_OUT_OF_RANGE: return HA_ERR_END_OF_FILE;
  case CHECK_ABORTED_BY_USER: return HA_ERR_ABORTED_BY_USER;
  default: return HA_ERR_INTERNAL_ERROR;
  }
}

void Measured::add()
{
  ek_costs now;
  ek_costs_of_thread(&now);
  m_to->pages_accessed+= now.visits - m_before.visits;
  m_to->pages_read_count+= now.reads - m_before.reads;
  const double seconds= double(now.read_ns - m_before.read_ns) / 1e9;
  m_to->pages_read_time+= ulonglong(seconds * timer_tracker_frequency());
}

/* Another handler of the same rows for the same statement. The server's name may be that of another partition or of
   the table, so the clone uses this handler's path. It reads in the connection's transaction as this one does; for a
   table that an ALTER copies it opens a transaction of its own, while nobody writes. */
handler *ha_evenkeel::clone(const char *name, MEM_ROOT *root)
{
  const char *const path= plant("CloneOfGivenName") ? name : m_path.c_str();
  ha_evenkeel *made= static_cast<ha_evenkeel *>(handler::clone(path, root));
  if (!made)
    return nullptr;
  made->m_lock= m_lock;
  made->m_outer_lock= m_outer_lock;
  made->m_peek= m_peek;
  made->m_is_copied= m_is_copied;
  made->m_replaces= m_replaces;
  return made;
}

/* The buffer into which this handler reads its ranges. A partitioned table sizes its partitions' buffers by the key
   that the optimizer estimated last, whichever key is read. All partitions may be given the caller's one buffer,
   though they fill it before the first row is taken, or a buffer that ends behind the table's memory. So a partition
   has a buffer of its own; without memory for it, an empty one. Then ranges are read one by one, as for a caller
   that gives no buffer because it reads keys alone (index_merge). */
HANDLER_BUFFER *ha_evenkeel::range_buffer(HANDLER_BUFFER *given, uint mode)
{
  const bool is_default= mode & (HA_MRR_USE_DEFAULT_IMPL | HA_MRR_SORTED);
  if (!table->part_info || is_default || given->buffer == given->buffer_end)
    return given;
  const size_t bytes= ha_thd()->variables.mrr_buff_size;
  if (m_range_bytes < bytes)
  {
    m_range_buffer.reset(new (std::nothrow) uchar[bytes]);
    m_range_bytes= m_range_buffer ? bytes : 0;
  }
  uchar *const begin= m_range_buffer.get();
  m_range_space= {begin, begin + m_range_bytes, begin};
  return &m_range_space;
}

int ha_evenkeel::multi_range_read_init(RANGE_SEQ_IF *ranges, void *parameter, uint count, uint mode,
                                       HANDLER_BUFFER *buffer)
{
  buffer= range_buffer(buffer, mode);
  return m_ranges.dsmrr_init(this, ranges, parameter, count, mode, buffer);
}

int ha_evenkeel::multi_range_read_next(range_id_t *range)
{
  return m_ranges.dsmrr_next(range);
}

ha_rows ha_evenkeel::multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *parameter,
                                                 uint count, uint *bytes, uint *flags,
                                                 Cost_estimate *cost)
{
  m_ranges.init(this, table);
  return m_ranges.dsmrr_info_const(index, ranges, parameter, count, bytes, flags, cost);
}

ha_rows ha_evenkeel::multi_range_read_info(uint index, uint count, uint keys, uint parts,
                                           uint *bytes, uint *flags, Cost_estimate *cost)
{
  m_ranges.init(this, table);
  return m_ranges.dsmrr_info(index, count, keys, parts, bytes, flags, cost);
}

int ha_evenkeel::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return m_ranges.dsmrr_explain_info(mode, text, size);
}
