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
  if (table->next_number_field && record == table->record[0])
    if (int error= update_auto_increment())
      return error;
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
    if (txn && !ek_insert(txn, name(), row.data(), row.size(), &error))
      break;
    const int failed= fail(error);
    const bool may_be_gone= failed == HA_ERR_FOUND_DUPP_KEY && gone < 100;
    const int is_there= may_be_gone ? lock_duplicate(record) : failed;
    if (is_there)
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
  const std::string index= index_name(m_duplicate);
  ek_error error;
  ek_txn *txn= transaction(&error);
  const Owned_scan scan(!txn ? nullptr : ek_scan_locked(txn, name(), ek_text(index), &at, &at, 0,
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
  const int done= !txn ? -1 : ek_update(txn, name(), ek_text(m_key), m_row, columns.data(),
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
  const int done= !txn ? -1 : ek_delete(txn, name(), ek_text(m_key), m_row, &error);
  if (done < 0)
    return fail(error);
  if (int failed= changed(true))
    return failed;
  return done ? 0 : HA_ERR_KEY_NOT_FOUND;
}

/* -- rows into records -- */

/* True if entries of the active index have the field's value. */
bool ha_evenkeel::key_holds(uint field) const
{
  const uint keys[]= {active_index, m_clustered ? table_share->primary_key : MAX_KEY};
  for (uint index : keys)
  {
    if (index >= MAX_KEY)
      continue;
    const KEY *key= &table->key_info[index];
    for (uint i= 0; i < key->user_defined_key_parts; i++)
    {
      const KEY_PART_INFO *part= &key->key_part[i];
      if ((uint) part->fieldnr == field + 1 && is_whole(part))
        return true;
    }
  }
  return false;
}

/* Notes the parts of keys that entries of the active index do not have. */
void ha_evenkeel::note_partial()
{
  m_partial.clear();
  if (is_clustered(active_index))
    return;
  const uint keys[]= {active_index, m_clustered ? table_share->primary_key : MAX_KEY};
  for (uint index : keys)
  {
    if (index >= MAX_KEY)
      continue;
    const KEY *key= &table->key_info[index];
    for (uint i= 0; i < key->user_defined_key_parts; i++)
    {
      const uint field= key->key_part[i].fieldnr - 1;
      if (!key_holds(field))
        m_partial.push_back(field);
    }
  }
}

/* True if an entry of the active index has every part of its key that the server may read. For a key that covers the
   statement the server asks for all parts, but reads only the whole ones: no condition, and so no end of a range, is
   on another part. A partitioned table that merges its partitions' rows in order compares them by all parts. */
bool ha_evenkeel::is_entry_enough() const
{
  if (likely(m_partial.empty()))
    return true;
  if (m_compares)
    return false;
  const bool is_merged= m_is_sorted && table->part_info;
  if (table->covering_keys.is_set(active_index) && !is_merged)
    return true;
  return std::none_of(m_partial.begin(), m_partial.end(),
                      [&](uint field) { return bitmap_is_set(table->read_set, field); });
}

/* True if the scan to be opened is one of entries: the entries are enough, or are checked before their rows are
   read. A locking scan reads rows. */
bool ha_evenkeel::reads_entries() const
{
  if (m_lock != EK_LOCK_NONE || active_index >= MAX_KEY || is_clustered(active_index))
    return false;
  return filters_entries() || (keyread < MAX_KEY && is_entry_enough());
}

/* Copies the bits of a set of columns, for later comparisons. */
static void copy_bits(std::vector<my_bitmap_map> *to, const MY_BITMAP *from)
{
  to->assign(from->bitmap, from->bitmap + no_words_in_map(from));
}

/* Called for each row; a set mostly has one word. */
static inline bool has_bits(const std::vector<my_bitmap_map> &bits, const MY_BITMAP *set)
{
  const size_t words= no_words_in_map(set);
  if (bits.size() != words)
    return false;
  for (size_t i= 0; i < words; i++)
    if (bits[i] != set->bitmap[i])
      return false;
  return true;
}

/* DELETE of a system-versioned table changes a column. If the table is partitioned by that column the server writes
   the record into another partition, but only for UPDATE it says that it reads the whole row. */
inline bool ha_evenkeel::is_read_whole() const
{
  return (m_lock & EK_LOCK_EXCLUSIVE) && table->part_info && table->versioned();
}

/* True if rows are compared by the active index's columns as this handler returns them, before the server computes
   virtual columns, which it does only in the table's own record. A partitioned table that merges its partitions'
   rows in order has a buffer for each partition. */
inline bool ha_evenkeel::is_compared() const
{
  return active_index < MAX_KEY && (m_compares || (m_is_sorted && table->part_info));
}

/* Row after row reads the same columns, as long as the statement wants the same. */
inline bool ha_evenkeel::is_planned(const Fill &plan)
{
  return plan.table == table && plan.index == active_index && plan.is_whole == is_read_whole() &&
         plan.is_keyread == keyread_enabled() && plan.is_compared == is_compared() &&
         has_bits(plan.read, table->read_set) &&
         has_bits(plan.written, table->write_set);
}

static bool is_part(const KEY &key, uint field)
{
  for (uint i= 0; i < key.user_defined_key_parts; i++)
    if ((uint) key.key_part[i].fieldnr == field + 1)
      return true;
  return false;
}

/* Determines the columns that `fill` reads. */
void ha_evenkeel::plan_fill(Fill &plan, bool key_only)
{
  const bool is_whole= is_read_whole();
  /* The plan stays invalid until it is complete, because memory may run out on the way. */
  plan.table= nullptr;
  copy_bits(&plan.read, table->read_set);
  copy_bits(&plan.written, table->write_set);
  plan.index= active_index;
  plan.is_whole= is_whole;
  plan.is_keyread= keyread_enabled();
  plan.is_compared= is_compared();
  plan.fields.clear();
  plan.columns.clear();
  plan.has_blobs= false;
  for (Field **f= table->field; *f; f++)
  {
    Field *field= *f;
    const uint index= field->field_index;
    const int column= m_columns[index];
    plan.filled[index]= false;
    /* Columns that an UPDATE writes are read, too: a row that gets its own values does not change. */
    const bool is_asked= bitmap_is_set(table->read_set, index) ||
                         bitmap_is_set(table->write_set, index);
    if (column < 0 || !(is_asked || (is_whole && field->stored_in_db())))
      continue;
    /* The server computes virtual columns itself, except where it asked for entries only (a locking scan has the
       whole row then); where rows are compared it computes them too late. */
    const bool is_in_time= !plan.is_compared || !is_part(table->key_info[active_index], index);
    const bool made= !field->stored_in_db() && !plan.is_keyread && is_in_time;
    if (key_only ? !key_holds(index) : made)
      continue;
    const Column::How how= Column::of(field).how;
    plan.fields.push_back({field, how});
    plan.columns.push_back((uint32_t) column);
    plan.has_blobs|= how == Column::AS_BLOB;
    plan.filled[index]= true;
  }
  plan.values.resize(plan.columns.size());
  ek_plan_free(plan.plan);
  plan.plan= ek_plan_new(plan.columns.data(), plan.columns.size());
  plan.table= table;
}

void ha_evenkeel::free_longs()
{
  for (ek_long *value : m_longs)
    ek_long_free(value);
  m_longs.clear();
}

/* The keys of a table mostly have one length. */
inline void ha_evenkeel::keep_key(const ek_bytes &key)
{
  if (likely(m_key.size() == key.len))
    memcpy(&m_key[0], key.ptr, key.len);
  else
    m_key.assign((const char *) key.ptr, key.len);
}

int ha_evenkeel::fill(uchar *record, ek_row *row, bool key_only)
{
  Fill &plan= m_fills[key_only];
  m_fill= &plan;
  if (unlikely(!is_planned(plan)))
    plan_fill(plan, key_only);
  if (plan.has_blobs)
  {
    free_root(&m_blobs, MYF(MY_MARK_BLOCKS_FREE));
    free_longs();
  }
  ek_error error;
  ek_bytes key;
  ek_value *value= plan.values.data();
  if (ek_row_values(row, plan.plan, &key, value, &error))
    return fail(error);
  keep_key(key);
  const uint32_t *column= plan.columns.data();
  for (const auto &[field, how] : plan.fields)
  {
    /* A long value would take its memory twice. */
    if (how == Column::AS_BLOB)
      m_longs.reserve(m_longs.size() + 1);
    ek_long *taken= how == Column::AS_BLOB ? ek_row_take(row, *column) : nullptr;
    if (taken)
      m_longs.push_back(taken);
    column++;
    if (put_value(field, how, record, *value++, taken ? nullptr : &m_blobs))
    {
      make_error(&error, CODE_BadEncoding, EK_CORRUPT, "column %s does not fit its type (table=%s)",
                 field->field_name.str, m_name.c_str());
      return fail(error);
    }
  }
#ifdef EVENKEEL_POISON
  poison(record, plan);
#endif
  return 0;
}
