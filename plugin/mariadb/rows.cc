/* Changes of rows, and rows put into records. */
#include "ha_evenkeel.h"
#include "columns.h"
#include "fault.h"
#include "keys.h"
#include "not_null.h"
#include "owned.h"
#include "fault_injection.h"
#include "two_phase.h"
#include <algorithm>

int ha_evenkeel::write_row(const uchar *record)
{
  const bool is_counted= table->next_number_field && record == table->record[0];
  if (is_counted)
  {
    if (int error= update_auto_increment())
      return error;
    if (m_numbers.rows_left)
      m_numbers.rows_left--;
  }
  Values row(table_share->fields + 1);
  size_t stored= 0;
  for (Field **field= table->field; *field; field++)
    if (m_columns[(*field)->field_index] >= 0)
    {
      row[m_columns[(*field)->field_index]]= value_of(*field, record, nullptr);
      stored++;
    }
  if (m_filler >= 0)
  {
    row[m_filler]= {EK_NULL, 0, {nullptr, 0}};
    stored++;
  }
  row.resize(stored);
  if (are_nulls_watched())
    see_nulls(m_name, [&](uint field) { return table->field[field]->is_null_in_record(record); });
  Measured measured(handler_stats);
  if (m_copy)
    return copy_row(row);
  ek_error error;
#ifdef EVENKEEL_PLANTED
  if (fault_of_change(&error))
    return fail(error);
#endif
  ek_txn *txn= transaction(&error);
  /* An index that is damaged may name for ever a row that does not exist. */
  for (int gone= 0;; gone++)
  {
    if (txn && !ek_insert(txn, m_table, row.data(), row.size(), &error))
      break;
    const int failed= fail(error);
    const bool may_be_gone= failed == HA_ERR_FOUND_DUPP_KEY && gone < 100;
    const int is_there= may_be_gone ? lock_duplicate(record) : failed;
    if (!is_there)
      continue;
    if (is_there == HA_ERR_FOUND_DUPP_KEY && is_counted)
      if (int error= number_refused())
        return error;
    return is_there;
  }
  /* The server may take the row back, or ask for its position. */
  const ek_bytes key= ek_last_key(txn);
  m_key.assign((const char *) key.ptr, key.len);
  if (int failed= changed(false))
    return failed;
  return table->found_next_number_field && record == table->record[0] ? number_written() : 0;
}

/* Locks the row that has the unique key of a new row, if the new row is to replace it. The server reads that row
   next, and would fail if another transaction that held it locked deleted it meanwhile. Once locked the row stays:
   HA_ERR_FOUND_DUPP_KEY. 0 if it is gone. */
int ha_evenkeel::lock_duplicate(const uchar *record)
{
  /* For a table with a DELETE trigger the server does not tell the handler that REPLACE may overwrite rows. */
  const bool replaces= m_replaces || ha_thd()->lex->duplicates == DUP_REPLACE;
  if (!replaces || m_duplicate >= table_share->keys)
    return HA_ERR_FOUND_DUPP_KEY;
  KEY *info= &table->key_info[m_duplicate];
  std::vector<uchar> image(info->key_length);
  key_copy(image.data(), record, info, info->key_length);
  const Values values= key_values(table, m_duplicate, image.data(),
                                  make_prev_keypart_map(info->user_defined_key_parts));
  const ek_bound at= {EK_INCLUDED, values.data(), values.size()};
  ek_error error;
  ek_txn *txn= transaction(&error);
  const Owned_scan scan(!txn ? nullptr : ek_scan_locked(txn, m_table, index_name(m_duplicate), &at, &at, 0,
                                                        EK_LOCK_EXCLUSIVE, &error));
  if (!scan)
    return fail(error);
  /* A separate row, because a long value in the shared one would keep a snapshot as long as the handle lives. */
  const Owned_row row(ek_row_new());
  const int found= ek_scan_next(scan.get(), row.get(), &error);
  if (found < 0)
    return fail(error);
  return found ? HA_ERR_FOUND_DUPP_KEY : 0;
}

/* A change is made. From now on its stamp holds the row that was read, not the lock of the scan. Rows of a sequence
   are not part of the connection's transaction. */
int ha_evenkeel::changed(bool row_read)
{
  if (row_read && m_scan && m_scan_row)
    ek_scan_unlock(m_scan);
  if (!m_own)
  {
    if (!m_changed)
      has_changed(ha_thd(), m_last_change);
    m_changed= true;
    return 0;
  }
  ek_error error;
  uint64_t commit;
  close_scan();
  ek_txn *own= m_own;
  m_own= nullptr;
  if (ek_commit(own, &commit, &error))
    return fail(error);
  *m_last_change= time(nullptr);
  /* Numbers are handed out from the sequence's reservation, possibly outside of any transaction. */
  return commit_durably(commit, &error) ? fail(error) : 0;
}

/* True if one of these columns of the engine is in the primary key. */
bool ha_evenkeel::changes_primary(const std::vector<uint16_t> &columns) const
{
  if (table_share->primary_key >= MAX_KEY)
    return false;
  const KEY *primary= &table->key_info[table_share->primary_key];
  for (uint i= 0; i < primary->user_defined_key_parts; i++)
    if (std::find(columns.begin(), columns.end(), m_columns[primary->key_part[i].fieldnr - 1]) !=
        columns.end())
      return true;
  return false;
}

int ha_evenkeel::update_row(const uchar *old_record, const uchar *new_record)
{
  std::vector<uint16_t> columns;
  Values values;
  bool numbered= false;
  for (Field **field= table->field; *field; field++)
  {
    const int column= m_columns[(*field)->field_index];
    if (column < 0 || (!(*field)->stored_in_db() && plant("VirtualChangeIgnored")))
      continue;
    /* A column that was not read is in neither record. It has changed if it is written, and is unchanged otherwise,
       whatever the server wants to read by now. A virtual column is computed anew where it is read or written, but
       the old record may lack its old value. */
    const uint index= (*field)->field_index;
    const bool is_stored= (*field)->stored_in_db();
    const bool was_read= is_stored && m_fill->filled[index];
    const bool is_made= !is_stored && bitmap_is_set(table->read_set, index);
    if (!was_read && !is_made && !bitmap_is_set(table->write_set, index))
      continue;
    const ek_value now= value_of(*field, new_record, nullptr);
    if (!was_read || !same(value_of(*field, old_record, nullptr), now))
    {
      columns.push_back((uint16_t) column);
      values.push_back(now);
      numbered|= *field == table->found_next_number_field;
    }
  }
  const auto is_stored= [&](uint16_t c) { return m_stored[c]; };
  if (std::none_of(columns.begin(), columns.end(), is_stored))
    return HA_ERR_RECORD_IS_THE_SAME;
  if (are_nulls_watched())
    see_nulls(m_name, [&](uint field) {
      if (m_fill->filled[field] || bitmap_is_set(table->write_set, field))
        return table->field[field]->is_null_in_record(new_record);
      /* Otherwise the row is unchanged: it stays at its place, unless it moves to where rows were already read. */
      return changes_primary(columns);
    });
  Measured measured(handler_stats);
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int done= !txn ? -1 : ek_update(txn, m_table, ek_text(m_key), m_row, columns.data(),
                                         values.data(), columns.size(), &error);
  if (done < 0)
    return fail(error);
  /* The present key of a row whose primary key has changed: the server asks for it after it has looked for
     duplicates of the keys that it checks itself. */
  const ek_bytes key= ek_last_key(txn);
  if (done)
    m_key.assign((const char *) key.ptr, key.len);
  if (int failed= changed(true))
    return failed;
  if (done && numbered && !plant("NumberOfUpdateForgotten") && new_record == table->record[0])
    return number_written();
  return done ? 0 : HA_ERR_KEY_NOT_FOUND;
}

int ha_evenkeel::delete_row(const uchar *)
{
  Measured measured(handler_stats);
  ek_error error;
  ek_txn *txn= transaction(&error);
  const int done= !txn ? -1 : ek_delete(txn, m_table, ek_text(m_key), m_row, &error);
  if (done < 0)
    return fail(error);
  if (int failed= changed(true))
    return failed;
  return done ? 0 : HA_ERR_KEY_NOT_FOUND;
}
