/* Scans of tables and indexes, positions. */
#include "ha_evenkeel.h"
#include "columns.h"

int ha_evenkeel::open_scan(const Bound &lower, const Bound &upper, bool backward)
{
  close_scan();
  ek_error error;
  ek_txn *txn= transaction(&error);
  if (!txn)
    return fail(error);
  m_backward= backward;
  m_key_only= m_lock == EK_LOCK_NONE && active_index < MAX_KEY && !is_primary(active_index) &&
              keyread_enabled();
  const uint8_t flags= (backward ? EK_SCAN_BACKWARD : 0) | (m_key_only ? EK_SCAN_KEYS_ONLY : 0);
  const std::string index= active_index < MAX_KEY ? index_name(active_index) : std::string();
  const ek_bound from= lower.get(), to= upper.get();
  if (m_lock == EK_LOCK_NONE || m_own)
    m_scan= ek_scan(txn, name(), ek_text(index), &from, &to, flags, &error);
  else
    m_scan= ek_scan_locked(txn, name(), ek_text(index), &from, &to,
                           flags | (m_peek ? EK_SCAN_PEEK : 0), m_lock, &error);
  return m_scan ? 0 : fail(error);
}

void ha_evenkeel::close_scan()
{
  if (m_scan)
    ek_scan_free(m_scan);
  m_scan= nullptr;
  m_scan_row= m_peeked= false;
}

int ha_evenkeel::next(uchar *record)
{
  m_peeked= false;
  if (!m_scan)
    return HA_ERR_END_OF_FILE;
  ek_error error;
  const int found= ek_scan_next(m_scan, m_row, &error);
  if (found < 0)
    return fail(error);
  if (!found)
    return HA_ERR_END_OF_FILE;
  m_peeked= found == 2;
  m_scan_row= true;
  return fill(record, m_row, m_key_only);
}

int ha_evenkeel::rnd_init(bool scan)
{
  close_scan();
  m_key.clear();
  active_index= MAX_KEY;
  return scan ? open_scan(Bound(), Bound(), false) : 0;
}

int ha_evenkeel::rnd_end()
{
  close_scan();
  return 0;
}

/* HANDLER reads on in another statement than it began in. */
int ha_evenkeel::rnd_next(uchar *record)
{
  if (!m_scan && !m_key.empty())
  {
    const std::string here= m_key;
    ek_error error;
    if (int failed= open_scan(Bound(), Bound(), false))
      return failed;
    if (ek_scan_resume(m_scan, ek_text(here), &error))
      return fail(error);
  }
  return next(record);
}

void ha_evenkeel::position(const uchar *)
{
  const uint room= ref_length - sizeof(uint16);
  const uint len= MY_MIN((uint) m_key.size(), room);
  memset(ref, 0, ref_length);
  memcpy(ref, m_key.data(), len);
  int2store(ref + room, len);
}

int ha_evenkeel::rnd_pos(uchar *record, uchar *position)
{
  const uint len= uint2korr(position + ref_length - sizeof(uint16));
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int found= !txn ? -1 : ek_get(txn, name(), {position, len}, m_own ? EK_LOCK_NONE : m_lock, m_row,
                                        &error);
  if (found < 0)
    return fail(error);
  m_scan_row= false;
  return found ? fill(record, m_row, false) : HA_ERR_KEY_NOT_FOUND;
}

/* The row with the primary key of `record`: a replica finds rows so. */
int ha_evenkeel::rnd_pos_by_record(uchar *record)
{
  const KEY *primary= &table->key_info[table_share->primary_key];
  Bound at;
  at.kind= EK_INCLUDED;
  for (uint i= 0; i < primary->user_defined_key_parts; i++)
    at.values.push_back(value_of(primary->key_part[i].field, record, nullptr));
  active_index= table_share->primary_key;
  int error= open_scan(at, at, false);
  active_index= MAX_KEY;
  if (!error)
    error= next(record);
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_evenkeel::index_init(uint index, bool)
{
  active_index= index;
  return 0;
}

int ha_evenkeel::index_end()
{
  close_scan();
  active_index= MAX_KEY;
  return 0;
}

/* The values of a key in the server's own format, whose bytes stay valid until the next call. */
ha_evenkeel::Values ha_evenkeel::key_values(uint index, const uchar *key, key_part_map parts)
{
  Values values;
  KEY *info= &table->key_info[index];
  key_restore(m_scratch.data(), key, info, calculate_key_len(table, index, key, parts));
  for (uint i= 0; i < info->ext_key_parts && (parts & ((key_part_map) 1 << i)); i++)
  {
    if (i >= info->user_defined_key_parts)
      break;
    values.push_back(value_of(info->key_part[i].field, m_scratch.data(), nullptr));
  }
  return values;
}

int ha_evenkeel::index_read_map(uchar *record, const uchar *key, key_part_map parts,
                                enum ha_rkey_function flag)
{
  if (!key)
    return index_first(record);
  Bound at;
  at.values= key_values(active_index, key, parts);
  at.kind= EK_INCLUDED;
  Bound after= at;
  after.kind= EK_EXCLUDED;
  m_prefix_only= false;
  int error;
  switch (flag)
  {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
    m_prefix_only= true;
    m_prefix= after;
    error= open_scan(at, at, false);
    break;
  case HA_READ_KEY_OR_NEXT: error= open_scan(at, Bound(), false); break;
  case HA_READ_AFTER_KEY: error= open_scan(after, Bound(), false); break;
  case HA_READ_BEFORE_KEY: error= open_scan(Bound(), after, true); break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV: error= open_scan(Bound(), at, true); break;
  case HA_READ_PREFIX_LAST:
    m_prefix_only= true;
    m_prefix= after;
    error= open_scan(at, at, true);
    break;
  default: return HA_ERR_UNSUPPORTED;
  }
  if (!error)
    error= next(record);
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

/* Goes on in a direction from the present row, past the end of a prefix too. */
int ha_evenkeel::turn(uchar *record, bool backward)
{
  if (m_scan && m_backward == backward)
  {
    int error= next(record);
    if (error != HA_ERR_END_OF_FILE || !m_prefix_only)
      return error;
    m_prefix_only= false;
    error= backward ? open_scan(Bound(), m_prefix, true) : open_scan(m_prefix, Bound(), false);
    return error ? error : next(record);
  }
  /* The other way: to the present entry again, and past it. */
  const std::string here= m_key;
  const KEY *info= &table->key_info[active_index];
  Bound at;
  at.kind= EK_INCLUDED;
  memcpy(m_scratch.data(), record, table_share->reclength);
  for (uint i= 0; i < info->user_defined_key_parts; i++)
    at.values.push_back(value_of(info->key_part[i].field, m_scratch.data(), nullptr));
  m_prefix_only= false;
  int error= backward ? open_scan(Bound(), at, true) : open_scan(at, Bound(), false);
  while (!error)
  {
    error= next(record);
    if (!error && m_key == here)
      return next(record);
  }
  return error;
}

int ha_evenkeel::index_next(uchar *record) { return turn(record, false); }

int ha_evenkeel::index_prev(uchar *record) { return turn(record, true); }

int ha_evenkeel::index_next_same(uchar *record, const uchar *key, uint key_len)
{
  int error= next(record);
  if (!error && !m_prefix_only && key_cmp_if_same(table, key, active_index, key_len))
    error= HA_ERR_END_OF_FILE;
  return error;
}

int ha_evenkeel::index_first(uchar *record)
{
  m_prefix_only= false;
  const int error= open_scan(Bound(), Bound(), false);
  return error ? error : next(record);
}

int ha_evenkeel::index_last(uchar *record)
{
  m_prefix_only= false;
  const int error= open_scan(Bound(), Bound(), true);
  return error ? error : next(record);
}

ha_rows ha_evenkeel::records_in_range(uint index, const key_range *min, const key_range *max,
                                      page_range *)
{
  const ha_rows all= MY_MAX(stats.records, 2);
  if (!is_primary(index))
    return MY_MAX(all / 10, 1);
  Bound lower, upper;
  std::vector<uchar> first;
  if (min)
  {
    lower.values= key_values(index, min->key, min->keypart_map);
    lower.kind= min->flag == HA_READ_AFTER_KEY ? EK_EXCLUDED : EK_INCLUDED;
    /* The scratch record is used again for the other bound. */
    first.swap(m_scratch);
    m_scratch.resize(first.size());
  }
  if (max)
  {
    upper.values= key_values(index, max->key, max->keypart_map);
    upper.kind= max->flag == HA_READ_BEFORE_KEY ? EK_EXCLUDED : EK_INCLUDED;
  }
  const ek_bound from= lower.get(), to= upper.get();
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int64_t rows= txn ? ek_estimate(txn, name(), &from, &to, &error) : -1;
  return rows < 0 ? all : MY_MAX((ha_rows) rows, 1);
}
