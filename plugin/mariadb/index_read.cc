/* Reads of an index: to a key and on from there in both directions, and estimates of ranges. */
#include "ha_evenkeel.h"
#include "columns.h"
#include "keys.h"
#include "fault_injection.h"

int ha_evenkeel::index_init(uint index, bool sorted)
{
  active_index= index;
  m_is_sorted= sorted;
  m_prefix_only= false;
  m_place= AT_ROW;
  note_partial();
  return 0;
}

int ha_evenkeel::index_end()
{
  close_scan();
  active_index= MAX_KEY;
  return 0;
}

ha_evenkeel::Bound ha_evenkeel::bound(uint8_t kind, const uchar *key, key_part_map parts) const
{
  Bound bound;
  bound.values= key_values(table, active_index, key, parts);
  bound.kind= kind;
  return bound;
}

/* Reads the first row of a range with an end. The scan that begins ends there too, and locks nothing behind it. */
int ha_evenkeel::read_range_first(const key_range *start, const key_range *end, bool equal,
                                  bool sorted)
{
  m_range_end= end;
  const int error= handler::read_range_first(start, end, equal, sorted);
  m_range_end= nullptr;
  return error;
}

ha_evenkeel::Bound ha_evenkeel::range_end() const
{
  if (!m_range_end)
    return Bound();
  return bound(m_range_end->flag == HA_READ_BEFORE_KEY ? EK_EXCLUDED : EK_INCLUDED,
               m_range_end->key, m_range_end->keypart_map);
}

/* A plain read of the row with a whole primary key, without a scan; a later `index_next` begins a scan behind the
   row. */
int ha_evenkeel::read_point(uchar *record, const uchar *key, key_part_map parts)
{
  close_scan();
  remember_prefix(key, parts);
  m_backward= m_prefix_back= false;
  m_at_point= true;
  Measured measured(handler_stats);
  ek_error error;
  ek_txn *txn= transaction(&error);
  key_values(table, active_index, key, parts, &m_point);
  const int found= !txn ? -1 : get_direct(record, txn, m_point, &error);
  if (found < 0)
    return fail(error);
  return found > 1 ? found : placed(found ? 0 : HA_ERR_KEY_NOT_FOUND);
}

bool ha_evenkeel::is_whole_primary(key_part_map parts, enum ha_rkey_function flag) const
{
  return flag == HA_READ_KEY_EXACT && is_clustered(active_index) &&
         parts == make_prev_keypart_map(table->key_info[active_index].user_defined_key_parts);
}

bool ha_evenkeel::is_point(key_part_map parts, enum ha_rkey_function flag) const
{
  return is_whole_primary(parts, flag) && m_lock == EK_LOCK_NONE && !m_is_copied;
}

int ha_evenkeel::index_read_map(uchar *record, const uchar *key, key_part_map parts,
                                enum ha_rkey_function flag)
{
  if (!key)
    return index_first(record);
  if (is_point(parts, flag))
    return read_point(record, key, parts);
  const bool is_beside= (flag == HA_READ_AFTER_KEY && !plant("AfterKeyInclusive")) ||
                        flag == HA_READ_BEFORE_KEY;
  const Bound at= bound(is_beside ? EK_EXCLUDED : EK_INCLUDED, key, parts), none;
  m_prefix_only= m_prefix_back= false;
  int error;
  switch (flag)
  {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
    remember_prefix(key, parts);
    error= lock_checked(at);
    /* The server repeats the read of such a row, once it has been peeked at, by reading its key anew: in a
       scan of its own, which would peek again, without end. The first read waits, as with InnoDB. */
    if (!error)
      error= open_scan(at, at, false, !is_whole_primary(parts, flag));
    break;
  case HA_READ_PREFIX_LAST:
    remember_prefix(key, parts);
    m_prefix_back= true;
    error= open_scan(at, at, true);
    break;
  case HA_READ_KEY_OR_NEXT: error= open_scan(at, range_end(), false); break;
  case HA_READ_AFTER_KEY:
    error= lock_checked(at);
    if (!error)
      error= open_scan(at, range_end(), false);
    break;
  case HA_READ_BEFORE_KEY: error= open_scan(none, at, true); break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV: error= open_scan(none, at, true); break;
  default: return HA_ERR_UNSUPPORTED;
  }
  if (!error)
    error= placed(next(record));
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

/* The scan that begins ends with this prefix. */
void ha_evenkeel::remember_prefix(const uchar *key, key_part_map parts)
{
  m_prefix_only= true;
  m_prefix_parts= parts;
  m_prefix.assign((const char *) key, calculate_key_len(table, active_index, key, parts));
}

/* Notes where a read has ended. HANDLER continues from there, as in InnoDB also from a place without a row. */
int ha_evenkeel::placed(int error)
{
  if (!error)
    m_place= AT_ROW;
  else if (error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND)
    m_place= m_prefix_only ? (m_backward ? BEFORE_PREFIX : BEHIND_PREFIX)
                           : (m_backward ? BEFORE_ALL : BEHIND_ALL);
  return error;
}

/* Continues in the scan's direction, also past the end of a prefix. */
int ha_evenkeel::go_on(uchar *record, bool backward)
{
  return behind_prefix(next(record), record, backward);
}

/* The same after the scan has returned `error`. */
int ha_evenkeel::behind_prefix(int error, uchar *record, bool backward)
{
  if (error != HA_ERR_END_OF_FILE || !m_prefix_only)
    return error;
  m_prefix_only= false;
  const Bound past= bound(EK_EXCLUDED, (const uchar *) m_prefix.data(), m_prefix_parts);
  error= backward ? open_scan(Bound(), past, true) : open_scan(past, Bound(), false);
  return error ? error : next(record);
}

/* Continues from the present row in a direction: the opposite one, or for HANDLER in another statement. If the row
   is gone, its place is between its neighbours of the same key, which lie in the order of the clustered key. */
int ha_evenkeel::turn(uchar *record, bool backward)
{
  if ((m_scan || m_at_point) && m_backward == backward)
    return placed(go_on(record, backward));
  if (m_place != AT_ROW && !plant("EndForgotten"))
    return go_on_from_end(record, backward);
  m_prefix_back= false;
  const std::string here= m_key;
  KEY *info= &table->key_info[active_index];
  std::vector<uchar> image(info->key_length);
  key_copy(image.data(), record, info, info->key_length);
  const key_part_map all= make_prev_keypart_map(info->user_defined_key_parts);
  const Bound at= bound(EK_INCLUDED, image.data(), all);
  remember_prefix(image.data(), all);
  int error= open_scan(at, at, backward);
  while (!error)
  {
    error= go_on(record, backward);
    const int order= m_key.compare(here);
    if (!m_prefix_only || (backward ? order < 0 : order > 0) || plant("TurnRepeats"))
      break;
  }
  return placed(error);
}

/* There are no more rows. The transaction of a reader that has looked for them has its snapshot from here on. */
int ha_evenkeel::stay_at_end()
{
  const int error= open_scan(Bound(), Bound(), false);
  close_scan();
  return error ? error : HA_ERR_END_OF_FILE;
}

/* Continues from an end of the rows: all rows, or the rows of the prefix, lie before or behind it. */
int ha_evenkeel::go_on_from_end(uchar *record, bool backward)
{
  if (m_place == (backward ? BEFORE_ALL : BEHIND_ALL))
    return stay_at_end();
  Bound end;
  if (m_place == BEFORE_PREFIX || m_place == BEHIND_PREFIX)
  {
    const bool has_prefix= backward == (m_place == BEHIND_PREFIX);
    end= bound(has_prefix ? EK_INCLUDED : EK_EXCLUDED, (const uchar *) m_prefix.data(),
               m_prefix_parts);
  }
  m_prefix_only= m_prefix_back= false;
  const int error= backward ? open_scan(Bound(), end, true) : open_scan(end, Bound(), false);
  return error ? error : placed(next(record));
}

/* Called for each row of a range. */
int ha_evenkeel::index_next(uchar *record)
{
  if (unlikely(!m_scan || m_backward))
    return turn(record, false);
  const int error= next(record);
  if (unlikely(error))
    return placed(behind_prefix(error, record, false));
  m_place= AT_ROW;
  return 0;
}

/* A reader that goes back from the last row of a prefix wants no row before the prefix. A locking read locks none
   there, and at SERIALIZABLE not the whole range from there to the beginning of the index. */
int ha_evenkeel::index_prev(uchar *record)
{
  if (m_scan && m_prefix_only && m_prefix_back && m_lock != EK_LOCK_NONE && !plant("PrevKeepsLocking"))
    return next(record);
  return turn(record, true);
}

/* A scan that was opened for the key ends with it. Rows of other scans are compared with the key in their own
   buffer, because a partitioned table has one for each partition. */
int ha_evenkeel::index_next_same(uchar *record, const uchar *key, uint key_len)
{
  m_compares= !m_prefix_only;
  int error= placed(next(record));
  m_compares= false;
  if (error || m_prefix_only)
    return error;
  const KEY *info= &table->key_info[active_index];
  uchar *const record_0= table->record[0];
  const auto move_to= [&](uchar *to) {
    for (uint i= 0; i < info->user_defined_key_parts; i++)
      info->key_part[i].field->move_field_offset(to - table->record[0]);
    table->record[0]= to;
  };
  move_to(record);
  if (key_cmp_if_same(table, key, active_index, key_len))
    error= HA_ERR_END_OF_FILE;
  move_to(record_0);
  return error;
}

int ha_evenkeel::index_first(uchar *record)
{
  m_prefix_only= false;
  const int error= open_scan(Bound(), range_end(), false);
  return error ? error : placed(next(record));
}

int ha_evenkeel::index_last(uchar *record)
{
  m_prefix_only= false;
  const int error= open_scan(Bound(), Bound(), true);
  return error ? error : placed(next(record));
}

ha_rows ha_evenkeel::records_in_range(uint index, const key_range *min, const key_range *max,
                                      page_range *)
{
  Bound lower, upper;
  if (min)
  {
    lower.values= key_values(table, index, min->key, min->keypart_map);
    lower.kind= min->flag == HA_READ_AFTER_KEY ? EK_EXCLUDED : EK_INCLUDED;
  }
  if (max)
  {
    upper.values= key_values(table, index, max->key, max->keypart_map);
    upper.kind= max->flag == HA_READ_BEFORE_KEY ? EK_EXCLUDED : EK_INCLUDED;
  }
  const ek_bound from= lower.get(), to= upper.get();
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int64_t rows= !txn ? -1 : ek_estimate(txn, m_table, index_name(index), &from, &to, &error);
  if (rows >= 0)
    return MY_MAX((ha_rows) rows, 1);
  /* The optimizer takes another way to the rows, as if the range could not be read. A statement that needs the
     failed part fails by itself. */
  warn_of_error(ha_thd(), error);
  return HA_POS_ERROR;
}
