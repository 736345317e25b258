#include "ha_evenkeel.h"
#include "columns.h"

/* Bytes of a clustered key at most: a fifth of the largest page. */
static const uint KEY_BYTES_MAX= 16384 / 5;

handler::Table_flags ha_evenkeel::table_flags() const
{
  return HA_BINLOG_ROW_CAPABLE | HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS |
         HA_PARTIAL_COLUMN_READ | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
         HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE |
         HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY | HA_CAN_SQL_HANDLER |
         HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS | HA_ONLINE_ANALYZE |
         HA_CONCURRENT_OPTIMIZE | HA_CAN_SKIP_LOCKED | HA_CHECK_UNIQUE_AFTER_WRITE;
}

ulong ha_evenkeel::index_flags(uint index, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  if (index == table_share->primary_key)
    flags|= HA_CLUSTERED_INDEX;
  return flags;
}

Table_share_data *ha_evenkeel::shared()
{
  lock_shared_ha_data();
  Table_share_data *data= static_cast<Table_share_data *>(get_ha_share_ptr());
  if (!data)
  {
    data= new Table_share_data;
    set_ha_share_ptr(data);
  }
  unlock_shared_ha_data();
  return data;
}

int ha_evenkeel::fail(const ek_error &error)
{
  if (error.kind == EK_DUPLICATE)
  {
    m_duplicate= table_share->primary_key;
    for (uint i= 0; i < table_share->keys; i++)
      if (index_name(i) == error.index)
        m_duplicate= i;
  }
  return handler_error(ha_thd(), error);
}

std::string ha_evenkeel::index_name(uint index) const
{
  return is_primary(index) ? std::string() : std::string(table->key_info[index].name.str);
}

int ha_evenkeel::open(const char *path, int, uint)
{
  m_name= table_name(path);
  if (!ek_table_exists(evenkeel_db, name()))
    return HA_ERR_NO_SUCH_TABLE;
  int column= 0;
  m_columns.clear();
  for (Field **field= table->field; *field; field++)
    m_columns.push_back((*field)->stored_in_db() ? column++ : -1);
  m_row= ek_row_new();
  m_locked_row= ek_row_new();
  m_scratch.resize(table_share->reclength);
  ref_length= 8 + sizeof(uint16);
  if (table_share->primary_key < MAX_KEY)
  {
    const KEY *primary= &table->key_info[table_share->primary_key];
    uint bytes= 0;
    for (uint i= 0; i < primary->user_defined_key_parts; i++)
      bytes+= 2 * primary->key_part[i].store_length + 3;
    ref_length= MY_MIN(bytes, KEY_BYTES_MAX) + sizeof(uint16);
  }
  return 0;
}

int ha_evenkeel::close()
{
  close_scan();
  if (m_row)
    ek_row_free(m_row);
  if (m_locked_row)
    ek_row_free(m_locked_row);
  m_row= m_locked_row= nullptr;
  return 0;
}

static int refuse(const char *what)
{
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Table storage engine 'EVENKEEL' does not support "
                  "%s yet", MYF(0), what);
  return HA_WRONG_CREATE_OPTION;
}

/* The parts of a key; a reason if it cannot be one. */
static const char *key_parts(const KEY *key, const std::vector<int> &columns,
                             std::vector<ek_part> *parts)
{
  if (key->algorithm == HA_KEY_ALG_FULLTEXT || key->algorithm == HA_KEY_ALG_RTREE)
    return "FULLTEXT and SPATIAL indexes";
  if (key->algorithm == HA_KEY_ALG_LONG_HASH)
    return "unique keys over long columns";
  for (uint i= 0; i < key->user_defined_key_parts; i++)
  {
    const KEY_PART_INFO *part= &key->key_part[i];
    const int column= columns[part->fieldnr - 1];
    if (column < 0)
      return "indexes of virtual columns";
    if (part->key_part_flag & HA_PART_KEY_SEG)
      return "indexes of a prefix of a column";
    if (!Column::orders_by_bytes(part->field))
      return "indexes of columns with a collation other than binary";
    parts->push_back({(uint16_t) column, (uint8_t)((part->key_part_flag & HA_REVERSE_SORT) != 0)});
  }
  return nullptr;
}

int ha_evenkeel::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  while (Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY)
      return refuse("foreign keys");
  std::vector<ek_column> columns;
  std::vector<int> position;
  for (Field **f= form->field; *f; f++)
  {
    Field *field= *f;
    position.push_back(field->stored_in_db() ? (int) columns.size() : -1);
    if (!field->stored_in_db())
      continue;
    const Column column= Column::of(field);
    const uint8_t flags= field->real_maybe_null() ? EK_NULLABLE : 0;
    const ek_bytes name= {(const uint8_t *) field->field_name.str, field->field_name.length};
    columns.push_back({name, column.type_code, flags, column.a, column.b});
  }
  std::vector<ek_part> primary;
  std::vector<std::vector<ek_part>> parts(form->s->keys);
  std::vector<ek_index> indexes;
  for (uint i= 0; i < form->s->keys; i++)
  {
    const KEY *key= &form->key_info[i];
    if (const char *why= key_parts(key, position, &parts[i]))
      return refuse(why);
    if (i == form->s->primary_key)
      primary= parts[i];
    else
      indexes.push_back({{(const uint8_t *) key->name.str, key->name.length}, parts[i].data(),
                         parts[i].size(), (uint8_t)((key->flags & HA_NOSAME) != 0)});
  }
  const std::string made= table_name(path);
  ek_error error;
  if (ek_create_table(evenkeel_db, ek_text(made), columns.data(), columns.size(), primary.data(),
                      primary.size(), indexes.data(), indexes.size(), &error))
    return handler_error(ha_thd(), error);
  return 0;
}

int ha_evenkeel::delete_table(const char *path)
{
  return evenkeel_hton->drop_table(evenkeel_hton, path);
}

int ha_evenkeel::rename_table(const char *from, const char *to)
{
  ek_error error;
  const std::string old_name= table_name(from), new_name= table_name(to);
  if (ek_rename_table(evenkeel_db, ek_text(old_name), ek_text(new_name), &error))
    return handler_error(ha_thd(), error);
  return 0;
}

int ha_evenkeel::truncate()
{
  ek_error error;
  if (ek_truncate(evenkeel_db, name(), &error))
    return fail(error);
  shared()->next_number= 0;
  return 0;
}

/* -- changes -- */

int ha_evenkeel::write_row(const uchar *record)
{
  if (table->next_number_field && record == table->record[0])
    if (int error= update_auto_increment())
      return error;
  Values row;
  for (Field **field= table->field; *field; field++)
    if ((*field)->stored_in_db())
      row.push_back(value_of(*field, record, nullptr));
  ek_error error;
  ek_txn *txn= begun(ha_thd(), &error);
  if (!txn || ek_insert(txn, name(), row.data(), row.size(), &error))
    return fail(error);
  if (table->found_next_number_field && record == table->record[0])
  {
    /* A number that was given goes on from there. */
    Field *field= table->found_next_number_field;
    const longlong n= field->val_int();
    if (n > 0 || (field->flags & UNSIGNED_FLAG))
    {
      std::atomic<ulonglong> &next= shared()->next_number;
      ulonglong have= next.load();
      while (have != 0 && have <= (ulonglong) n &&
             !next.compare_exchange_weak(have, (ulonglong) n + 1)) {}
    }
  }
  return 0;
}

static bool same(const ek_value &a, const ek_value &b)
{
  return a.kind == b.kind && a.bits == b.bits && a.bytes.len == b.bytes.len &&
         (a.bytes.len == 0 || memcmp(a.bytes.ptr, b.bytes.ptr, a.bytes.len) == 0);
}

int ha_evenkeel::update_row(const uchar *old_record, const uchar *new_record)
{
  std::vector<uint16_t> columns;
  Values values;
  for (Field **field= table->field; *field; field++)
  {
    const int column= m_columns[(*field)->field_index];
    if (column < 0)
      continue;
    const ek_value now= value_of(*field, new_record, nullptr);
    if (!same(value_of(*field, old_record, nullptr), now))
    {
      columns.push_back((uint16_t) column);
      values.push_back(now);
    }
  }
  if (columns.empty())
    return HA_ERR_RECORD_IS_THE_SAME;
  ek_error error;
  ek_txn *txn= begun(ha_thd(), &error);
  const int done= !txn ? -1 : ek_update(txn, name(), ek_text(m_key), columns.data(),
                                         values.data(), columns.size(), &error);
  if (done < 0)
    return fail(error);
  return done ? 0 : HA_ERR_KEY_NOT_FOUND;
}

int ha_evenkeel::delete_row(const uchar *)
{
  ek_error error;
  ek_txn *txn= begun(ha_thd(), &error);
  const int done= !txn ? -1 : ek_delete(txn, name(), ek_text(m_key), &error);
  if (done < 0)
    return fail(error);
  return done ? 0 : HA_ERR_KEY_NOT_FOUND;
}

/* -- rows into records -- */

/* Does an entry of the active index give the field. */
bool ha_evenkeel::key_holds(uint field) const
{
  const uint keys[]= {active_index, table_share->primary_key};
  for (uint index : keys)
  {
    if (index >= MAX_KEY)
      continue;
    const KEY *key= &table->key_info[index];
    for (uint i= 0; i < key->user_defined_key_parts; i++)
      if ((uint) key->key_part[i].fieldnr == field + 1)
        return true;
  }
  return false;
}

int ha_evenkeel::fill(uchar *record, const ek_row *row, bool key_only)
{
  const ek_bytes key= ek_row_key(row);
  m_key.assign((const char *) key.ptr, key.len);
  free_root(&m_blobs, MYF(MY_MARK_BLOCKS_FREE));
  for (Field **f= table->field; *f; f++)
  {
    Field *field= *f;
    const int column= m_columns[field->field_index];
    if (column < 0 || !bitmap_is_set(table->read_set, field->field_index))
      continue;
    if (key_only && !key_holds(field->field_index))
      continue;
    ek_value value;
    ek_error error;
    if (ek_row_value(row, (uint32_t) column, &value, &error))
      return fail(error);
    if (put_value(field, record, value, &m_blobs))
    {
      sql_print_error("EVENKEEL: table %s: column %s does not fit its type", m_name.c_str(),
                      field->field_name.str);
      return HA_ERR_CRASHED;
    }
  }
  return 0;
}

/* -- scans -- */

int ha_evenkeel::open_scan(const Bound &lower, const Bound &upper, bool backward)
{
  close_scan();
  ek_error error;
  ek_txn *txn= begun(ha_thd(), &error);
  if (!txn)
    return fail(error);
  m_backward= backward;
  m_key_only= m_lock == EK_LOCK_NONE && active_index < MAX_KEY && !is_primary(active_index) &&
              keyread_enabled();
  const uint8_t flags= (backward ? EK_SCAN_BACKWARD : 0) | (m_key_only ? EK_SCAN_KEYS_ONLY : 0);
  const std::string index= active_index < MAX_KEY ? index_name(active_index) : std::string();
  const ek_bound from= lower.get(), to= upper.get();
  m_scan= ek_scan(txn, name(), ek_text(index), &from, &to, flags, &error);
  return m_scan ? 0 : fail(error);
}

void ha_evenkeel::close_scan()
{
  if (m_scan)
    ek_scan_free(m_scan);
  m_scan= nullptr;
}

/* Has the row other values of the active index than when the scan met it. */
bool ha_evenkeel::moved(const ek_row *then, const ek_row *now)
{
  if (active_index >= MAX_KEY || is_primary(active_index))
    return false;
  const KEY *key= &table->key_info[active_index];
  for (uint i= 0; i < key->user_defined_key_parts; i++)
  {
    const uint32_t column= (uint32_t) m_columns[key->key_part[i].fieldnr - 1];
    ek_value a, b;
    ek_error error;
    if (ek_row_value(then, column, &a, &error) || ek_row_value(now, column, &b, &error) ||
        !same(a, b))
      return true;
  }
  return false;
}

int ha_evenkeel::next(uchar *record)
{
  ek_error error;
  for (;;)
  {
    if (!m_scan)
      return HA_ERR_END_OF_FILE;
    const int found= ek_scan_next(m_scan, m_row, &error);
    if (found < 0)
      return fail(error);
    if (!found)
      return HA_ERR_END_OF_FILE;
    if (m_lock == EK_LOCK_NONE)
      return fill(record, m_row, m_key_only);
    ek_txn *txn= begun(ha_thd(), &error);
    const int locked= !txn ? -1 : ek_get(txn, name(), ek_row_key(m_row), m_lock, m_locked_row,
                                         &error);
    if (locked < 0)
      return fail(error);
    if (locked && !moved(m_row, m_locked_row))
      return fill(record, m_locked_row, false);
    if (thd_kill_level(ha_thd()))
      return HA_ERR_ABORTED_BY_USER;
  }
}

int ha_evenkeel::rnd_init(bool scan)
{
  close_scan();
  active_index= MAX_KEY;
  return scan ? open_scan(Bound(), Bound(), false) : 0;
}

int ha_evenkeel::rnd_end()
{
  close_scan();
  return 0;
}

int ha_evenkeel::rnd_next(uchar *record) { return next(record); }

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
  ek_txn *txn= begun(ha_thd(), &error);
  const int found= !txn ? -1 : ek_get(txn, name(), {position, len}, m_lock, m_row, &error);
  if (found < 0)
    return fail(error);
  return found ? fill(record, m_row, false) : HA_ERR_KEY_NOT_FOUND;
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
  ek_txn *txn= begun(ha_thd(), &error);
  const int64_t rows= txn ? ek_estimate(txn, name(), &from, &to, &error) : -1;
  return rows < 0 ? all : MY_MAX((ha_rows) rows, 1);
}

/* -- the rest -- */

int ha_evenkeel::info(uint what)
{
  if (what & HA_STATUS_ERRKEY)
    errkey= m_duplicate;
  if (what & HA_STATUS_AUTO)
    stats.auto_increment_value= MY_MAX(shared()->next_number.load(), 1);
  if (what & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
  {
    const Bound all;
    const ek_bound from= all.get(), to= all.get();
    ek_error error;
    ek_txn *txn= ek_begin(evenkeel_db, EK_READ_COMMITTED, 0, &error);
    if (txn)
    {
      const int64_t rows= ek_estimate(txn, name(), &from, &to, &error);
      ek_rollback(txn, &error);
      stats.records= rows < 1 ? 1 : (ha_rows) rows;
    }
    stats.mean_rec_length= table_share->reclength;
    stats.data_file_length= stats.records * stats.mean_rec_length;
    stats.block_size= 4096;
    for (uint i= 0; i < table_share->keys; i++)
    {
      KEY *key= &table->key_info[i];
      for (uint j= 0; j < key->ext_key_parts; j++)
        key->rec_per_key[j]= (key->flags & HA_NOSAME) && j + 1 >= key->user_defined_key_parts
                               ? 1 : MY_MAX((ulong)(stats.records / (10 * (j + 1))), 1);
    }
  }
  return 0;
}

int ha_evenkeel::extra(enum ha_extra_function) { return 0; }

int ha_evenkeel::reset()
{
  close_scan();
  m_key.clear();
  free_root(&m_blobs, MYF(0));
  return 0;
}

int ha_evenkeel::external_lock(THD *thd, int lock_type)
{
  if (lock_type == F_UNLCK)
  {
    close_scan();
    statement_leaves(thd);
  }
  else
  {
    if (lock_type == F_WRLCK)
      m_lock= (m_lock & EK_LOCK_SKIP) | EK_LOCK_EXCLUSIVE;
    statement_enters(thd, m_lock != EK_LOCK_NONE);
  }
  return 0;
}

int ha_evenkeel::start_stmt(THD *thd, thr_lock_type lock_type)
{
  m_lock= lock_type >= TL_FIRST_WRITE ? EK_LOCK_EXCLUSIVE
        : lock_type == TL_READ_WITH_SHARED_LOCKS ? EK_LOCK_SHARED : EK_LOCK_NONE;
  statement_enters(thd, m_lock != EK_LOCK_NONE);
  statement_leaves(thd);
  return 0;
}

THR_LOCK_DATA **ha_evenkeel::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  if (type == TL_READ_SKIP_LOCKED)
    m_lock= EK_LOCK_SHARED | EK_LOCK_SKIP;
  else if (type == TL_WRITE_SKIP_LOCKED)
    m_lock= EK_LOCK_EXCLUSIVE | EK_LOCK_SKIP;
  else if (type >= TL_FIRST_WRITE)
    m_lock= EK_LOCK_EXCLUSIVE;
  else
    m_lock= type == TL_READ_WITH_SHARED_LOCKS ? EK_LOCK_SHARED : EK_LOCK_NONE;
  return to;
}

/* The highest number in the column, read from its index. */
ulonglong ha_evenkeel::highest_number()
{
  ek_error error;
  ulonglong highest= 0;
  ek_txn *txn= ek_begin(evenkeel_db, EK_READ_UNCOMMITTED, 0, &error);
  if (!txn)
    return 0;
  const ek_bound none= {EK_UNBOUNDED, nullptr, 0};
  const uint index= table_share->next_number_index;
  const bool descending= table->key_info[index].key_part[0].key_part_flag & HA_REVERSE_SORT;
  ek_row *row= ek_row_new();
  ek_scan_handle *scan= ek_scan(txn, name(), ek_text(index_name(index)), &none, &none,
                                descending ? 0 : EK_SCAN_BACKWARD, &error);
  ek_value value;
  const uint32_t column= (uint32_t) m_columns[table->found_next_number_field->field_index];
  if (scan && ek_scan_next(scan, row, &error) == 1 && !ek_row_value(row, column, &value, &error))
    highest= value.kind == EK_INT && (int64_t) value.bits < 0 ? 0 : value.bits;
  if (scan)
    ek_scan_free(scan);
  ek_row_free(row);
  ek_rollback(txn, &error);
  return highest;
}

void ha_evenkeel::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                     ulonglong *first, ulonglong *given)
{
  std::atomic<ulonglong> &next= shared()->next_number;
  ulonglong have= next.load();
  if (have == 0)
  {
    const ulonglong start= highest_number() + 1;
    next.compare_exchange_strong(have, start);
    have= next.load();
  }
  ulonglong from;
  do
  {
    /* The next number of the series offset, offset + increment, ... */
    from= have <= offset ? offset : offset + (have - offset + increment - 1) / increment * increment;
  } while (!next.compare_exchange_weak(have, from + wanted * increment));
  *first= from;
  *given= wanted;
}

int ha_evenkeel::reset_auto_increment(ulonglong value)
{
  shared()->next_number= value;
  return 0;
}
