/* Rows, and entries of indexes, into records: which columns, by which way. */
#include "ha_evenkeel.h"
#include "columns.h"
#include "fault_injection.h"
#include "keys.h"
#include <algorithm>

/* Does an entry of the active index give the field. */
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

/* Which parts of keys entries of the active index do not give. */
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

/* Does an entry of the active index give every part of its key that the server may read. The server asks
   for all parts of a key that covers what the statement uses, but reads of them only those that are
   whole: no condition, and so no end of a range, is on another. A partitioned table that merges its
   partitions' rows in order compares them by all parts. */
bool ha_evenkeel::is_entry_enough() const
{
  if (likely(m_partial.empty()) || plant("PrefixTakenAsColumn"))
    return true;
  if (m_compares)
    return false;
  const bool is_merged= m_is_sorted && table->part_info;
  if (table->covering_keys.is_set(active_index) && !is_merged)
    return true;
  return std::none_of(m_partial.begin(), m_partial.end(),
                      [&](uint field) { return bitmap_is_set(table->read_set, field); });
}

/* Is the scan that is opened one of entries: they are enough, or are looked at before their rows are
   read. One that locks reads rows. */
bool ha_evenkeel::reads_entries() const
{
  if (m_lock != EK_LOCK_NONE || active_index >= MAX_KEY || is_clustered(active_index))
    return false;
  return filters_entries() || (keyread < MAX_KEY && is_entry_enough());
}

/* The bits of a set of columns, to be compared. */
static void copy_bits(std::vector<my_bitmap_map> *to, const MY_BITMAP *from)
{
  to->assign(from->bitmap, from->bitmap + no_words_in_map(from));
}

/* For each row: mostly of one word. */
static inline bool has_bits(const std::vector<my_bitmap_map> &bits, const MY_BITMAP *set)
{
  const size_t words= no_words_in_map(set);
  if (bits.size() != words)
    return false;
  if (likely(words == 1))
    return bits[0] == set->bitmap[0];
  for (size_t i= 0; i < words; i++)
    if (bits[i] != set->bitmap[i])
      return false;
  return true;
}

/* DELETE of a system-versioned table changes a column, and where that is what the table is partitioned
   by the server writes the record into another partition. It says that it reads all of a row for UPDATE
   alone. */
inline bool ha_evenkeel::is_read_whole() const
{
  return (m_lock & EK_LOCK_EXCLUSIVE) && table->part_info && table->versioned();
}

/* Are rows compared by the active index's columns as this handler gives them: before the server makes
   their virtual ones, which it makes in the table's own record alone. A partitioned table that merges its
   partitions' rows in order has a buffer for each. */
inline bool ha_evenkeel::is_compared() const
{
  return active_index < MAX_KEY && (m_compares || (m_is_sorted && table->part_info));
}

/* The same columns are read from row to row, as long as the statement wants the same. */
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

/* Which columns `fill` reads. */
void ha_evenkeel::plan_fill(Fill &plan, bool key_only)
{
  const bool is_whole= is_read_whole();
  /* None until it is whole: memory may give out on the way. */
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
    /* What an UPDATE writes is read too: a row that gets the values it has is not changed. */
    const bool is_asked= bitmap_is_set(table->read_set, index) ||
                         bitmap_is_set(table->write_set, index);
    if (column < 0 || !(is_asked || (is_whole && field->stored_in_db())))
      continue;
    /* The server makes virtual columns itself, but not where it asked for entries only (a locked
       scan has the whole row then), and not in time where rows are compared. */
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
  plan_direct(plan);
  plan.table= table;
}

/* How the engine puts a field's values into records; false if it cannot. */
static bool put_of(const Field *field, Column::How how, ek_put *put)
{
  const TABLE *table= field->table;
  const uchar *const record= table->record[0];
  *put= {(uint32_t)(field->ptr - record), field->pack_length(), 0, 0, EK_PUT_NUMBER, 0, 0,
         table->s->default_values + (field->ptr - record)};
  if (field->real_maybe_null())
  {
    /* Triggers have records whose bits lie elsewhere. */
    if (field->null_ptr < record || field->null_ptr >= record + table->s->reclength)
      return false;
    put->null_at= (uint32_t)(field->null_ptr - record);
    put->null_bit= field->null_bit;
  }
  switch (how)
  {
  case Column::AS_INT:
  case Column::AS_UINT:
  case Column::AS_LITTLE_ENDIAN: return put->len <= 8;
  case Column::AS_FLOAT: put->how= EK_PUT_FLOAT; return true;
  case Column::AS_FIXED: put->how= EK_PUT_BYTES; return true;
  case Column::AS_CHARS:
    put->how= EK_PUT_CHARS;
    put->fill= (uint8_t) field->charset()->pad_char;
    return field->charset()->mbminlen == 1;
  case Column::AS_VARIABLE:
    put->how= EK_PUT_VARIABLE;
    put->len_bytes= (uint8_t) static_cast<const Field_varstring *>(field)->length_bytes;
    return put->len == field->field_length + put->len_bytes;
  /* Its bytes lie outside the record. */
  default: return false;
  }
}

/* Can the engine put all columns of a plan into records itself. */
void ha_evenkeel::plan_direct(Fill &plan)
{
  std::vector<ek_put> puts(plan.fields.size());
  plan.is_direct= true;
  for (size_t i= 0; i < puts.size(); i++)
    plan.is_direct= plan.is_direct && put_of(plan.fields[i].first, plan.fields[i].second, &puts[i]);
  if (plan.is_direct)
    ek_plan_put(plan.plan, puts.data(), puts.size());
}

/* By what rows are read, or entries: made anew where what is wanted has changed. */
inline ha_evenkeel::Fill &ha_evenkeel::planned(bool key_only)
{
  Fill &plan= m_fills[key_only];
  if (unlikely(!is_planned(plan)))
    plan_fill(plan, key_only);
  return plan;
}

void ha_evenkeel::free_longs()
{
  for (ek_long *value : m_longs)
    ek_long_free(value);
  m_longs.clear();
}

/* Keys of a table are mostly of one length. */
inline void ha_evenkeel::keep_key(const ek_bytes &key)
{
  if (likely(m_key.size() == key.len))
    memcpy(&m_key[0], key.ptr, key.len);
  else
    m_key.assign((const char *) key.ptr, key.len);
}

int ha_evenkeel::fill(uchar *record, ek_row *row, bool key_only)
{
  Fill &plan= planned(key_only);
  m_fill= &plan;
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

/* The columns of the next row, or of the next entry of an index, put into the record by the engine. */
inline int ha_evenkeel::read_direct(uchar *record, Fill &plan)
{
  ek_error error;
  ek_bytes key;
  const int found= ek_scan_read(m_scan, plan.plan, record, &key, &error);
  if (unlikely(found <= 0))
    return found ? fail(error) : HA_ERR_END_OF_FILE;
  m_scan_row= true;
  m_fill= &plan;
  keep_key(key);
#ifdef EVENKEEL_POISON
  poison(record, plan);
#endif
  return 0;
}

/* The row with a whole primary key into the record, as a plain read: 1, 0 if there is none, -1 with an error; or the
   handler's error, which is greater, if its values do not fit the record. */
int ha_evenkeel::get_direct(uchar *record, ek_txn *txn, const Values &key, ek_error *error)
{
  Fill &plan= planned(false);
  ek_bytes of;
  const int found= !plan.is_direct ? ek_get_at(txn, m_table, key.data(), key.size(), m_row, error)
                                   : ek_get_read(txn, m_table, key.data(), key.size(), plan.plan, record,
                                                 m_row, &of, error);
  if (found <= 0)
    return found;
  if (!plan.is_direct)
  {
    const int failed= fill(record, m_row, false);
    return failed ? failed : 1;
  }
  m_fill= &plan;
  keep_key(of);
#ifdef EVENKEEL_POISON
  poison(record, plan);
#endif
  return 1;
}

/* As `next_filled`, of a scan that locks nothing; -1 where the engine does not put all of this row's columns
   into the record. What comes then by another way is the same row. */
inline int ha_evenkeel::next_direct(uchar *record)
{
  if (!m_gives_entries)
  {
    Fill &plan= planned(false);
    return plan.is_direct ? read_direct(record, plan) : -1;
  }
  const bool is_filtered= filters_entries();
  const bool is_enough= keyread_enabled() && is_entry_enough();
  if (!is_filtered && !is_enough)
    return -1;
  Fill &plan= planned(true);
  if (!plan.is_direct)
    return -1;
  for (;;)
  {
    if (int failed= read_direct(record, plan))
      return failed;
    if (!is_filtered)
      return 0;
    bool wanted;
    if (int failed= ask_of_entry(&wanted))
      return failed;
    if (!wanted)
      continue;
    if (is_enough)
      return 0;
    ek_error error;
    const int there= ek_scan_fetch_last(m_scan, m_whole_row, &error);
    if (there < 0)
      return fail(error);
    if (there)
      return fill(record, m_whole_row, false);
  }
}

/* Before each row the server may change what it wants: an entry alone (keyread), entries that it checks before their
   rows are read, or whole rows. */
int ha_evenkeel::next(uchar *record)
{
  m_peeked= false;
  if (!m_scan)
    return HA_ERR_END_OF_FILE;
  Measured measured(handler_stats);
  if (m_is_plain)
  {
    const int done= next_direct(record);
    if (likely(done >= 0))
      return done;
  }
  return next_filled(record);
}
