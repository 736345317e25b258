/* Scans of tables and indexes, and positions. */
#include "ha_evenkeel.h"
#include "columns.h"

int ha_evenkeel::open_scan(const Bound &lower, const Bound &upper, bool backward, bool may_peek)
{
  close_scan();
  Measured measured(handler_stats);
  ek_error error;
  if (m_is_copied && !m_own && begin_copied(&error))
    return fail(error);
  ek_txn *txn= transaction(&error);
  if (!txn)
    return fail(error);
  m_backward= backward;
  m_gives_entries= reads_entries();
  const uint8_t flags= (backward ? EK_SCAN_BACKWARD : 0) | (m_gives_entries ? EK_SCAN_KEYS_ONLY : 0);
  const ek_bytes index= index_name(active_index);
  const ek_bound from= lower.get(), to= upper.get();
  m_is_plain= m_lock == EK_LOCK_NONE || m_own;
  /* What it holds is not what the scan reads. */
  ek_row_clear(m_row);
  if (m_is_plain)
    m_scan= ek_scan(txn, m_table, index, &from, &to, flags, &error);
  else
    m_scan= ek_scan_locked(txn, m_table, index, &from, &to,
                           flags | (m_peek && may_peek ? EK_SCAN_PEEK : 0), m_lock, &error);
  return m_scan ? 0 : fail(error);
}

void ha_evenkeel::close_scan()
{
  if (m_scan)
    ek_scan_free(m_scan);
  m_scan= nullptr;
  m_scan_row= m_peeked= m_at_point= false;
}

/* What the server wants of a row it may say anew before each: an entry alone (keyread), entries that it
   looks at before their rows are read, whole rows. */
int ha_evenkeel::next_filled(uchar *record)
{
  ek_error error;
  for (;;)
  {
    const int found= ek_scan_next(m_scan, m_row, &error);
    if (found < 0)
      return fail(error);
    if (!found)
      return HA_ERR_END_OF_FILE;
    m_peeked= found == 2;
    m_scan_row= true;
    if (filters_entries())
    {
      bool wanted;
      if (int failed= check_entry(record, &wanted))
        return failed;
      if (!wanted)
      {
        unlock_row();
        continue;
      }
    }
    if (!m_gives_entries)
      return fill(record, m_row, false);
    if (keyread_enabled() && is_entry_enough())
      return fill(record, m_row, true);
    const int there= ek_scan_fetch(m_scan, m_row, m_whole_row, &error);
    if (there < 0)
      return fail(error);
    if (there)
      return fill(record, m_whole_row, false);
  }
}

int ha_evenkeel::rnd_init(bool scan)
{
  close_scan();
  m_key.clear();
  m_prefix_only= false;
  m_place= AT_ROW;
  active_index= MAX_KEY;
  m_partial.clear();
  return scan ? open_scan(Bound(), Bound(), false) : 0;
}

int ha_evenkeel::rnd_end()
{
  close_scan();
  return 0;
}

/* HANDLER may continue in another statement than the one in which it began. */
int ha_evenkeel::rnd_next(uchar *record)
{
  if (!m_scan && m_place == BEHIND_ALL)
    return stay_at_end();
  if (!m_scan && !m_key.empty())
  {
    const std::string here= m_key;
    ek_error error;
    if (int failed= open_scan(Bound(), Bound(), false))
      return failed;
    if (ek_scan_resume(m_scan, ek_text(here), &error))
      return fail(error);
  }
  return placed(next(record));
}

void ha_evenkeel::position(const uchar *)
{
  const uint room= ref_length - sizeof(uint16);
  const uint len= MY_MIN((uint) m_key.size(), room);
  memset(ref, 0, ref_length);
  memcpy(ref, m_key.data(), len);
  int2store(ref + room, len);
}

/* Reads the row with the primary key of `record`: a replica finds rows in this way. */
int ha_evenkeel::rnd_pos_by_record(uchar *record)
{
  const KEY *primary= &table->key_info[table_share->primary_key];
  Bound at;
  at.kind= EK_INCLUDED;
  for (uint i= 0; i < primary->user_defined_key_parts; i++)
    at.values.push_back(value_of(primary->key_part[i].field, record, nullptr));
  active_index= table_share->primary_key;
  int error= open_scan(at, at, false, false);
  active_index= MAX_KEY;
  if (!error)
    error= next(record);
  return error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error;
}

int ha_evenkeel::rnd_pos(uchar *record, uchar *position)
{
  Measured measured(handler_stats);
  const uint len= uint2korr(position + ref_length - sizeof(uint16));
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int found= !txn ? -1 : ek_get(txn, m_table, {position, len}, m_own ? EK_LOCK_NONE : m_lock, m_row,
                                        &error);
  if (found < 0)
    return fail(error);
  m_scan_row= false;
  return found ? fill(record, m_row, false) : HA_ERR_KEY_NOT_FOUND;
}
