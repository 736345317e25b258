#include "ha_evenkeel.h"
#include "columns.h"
#include "ddl.h"
#include "fault_injection.h"
#include "index_build.h"
#include "keys.h"
#include <algorithm>

/* Bytes of a clustered key, at most: a fifth of the largest page. */
static const uint KEY_BYTES_MAX= 16384 / 5;

ha_evenkeel::ha_evenkeel(handlerton *hton, TABLE_SHARE *share) : handler(hton, share)
{
  init_alloc_root(PSI_NOT_INSTRUMENTED, &m_blobs, 4096, 0, MYF(0));
}

ha_evenkeel::~ha_evenkeel()
{
  free_root(&m_blobs, MYF(0));
  free_longs();
  /* Cleans up after an open that has failed. */
  end_open();
}

void ha_evenkeel::end_open()
{
  if (m_row)
    ek_row_free(m_row);
  if (m_whole_row)
    ek_row_free(m_whole_row);
  m_row= m_whole_row= nullptr;
  if (m_table)
    ek_table_free(m_table);
  m_table= nullptr;
  if (m_last_change)
    close_last_change(m_name, &m_last_change);
}

/* True if the table has unique keys that the engine checks and others that the server checks. */
static bool mixes_unique_keys(const TABLE_SHARE *share)
{
  if (!share || !share->long_unique_table)
    return false;
  return std::any_of(share->key_info, share->key_info + share->keys,
                     [](const KEY &key) { return is_unique(&key); });
}

/* True for a statement that copies a table. No other connection sees the new table, so its rows may be checked
   before they are written. The server does not take back a row that ALTER IGNORE skips. */
bool copies_table(THD *thd)
{
  const int command= thd ? thd_sql_command(thd) : SQLCOM_END;
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX ||
         command == SQLCOM_DROP_INDEX || command == SQLCOM_OPTIMIZE;
}

/* The server does not take back a row that UPDATE IGNORE has changed, so it must look for duplicates of the keys
   that it checks itself before the write. That needs locks on absent keys (`lock_checked`), which are taken from
   REPEATABLE READ on, as in InnoDB. */
bool ha_evenkeel::checks_before_writing() const
{
  THD *thd= ha_thd();
  if (!thd || !table_share || !thd->lex->ignore ||
      !(table_share->long_unique_table || table_share->period.unique_keys) || plant("CheckedAfterWrite"))
    return false;
  const int command= thd_sql_command(thd);
  const bool updates= command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI ||
                      thd->lex->duplicates == DUP_UPDATE;
  return updates && thd_tx_isolation(thd) >= ISO_REPEATABLE_READ;
}

/* The server assumes that the keys it checks itself are checked first, but it checks them after the engine wrote the
   row. With a fixed order it would turn a REPLACE into an update of the row that conflicts in the key it believes
   last, although later checks may find other rows. Told that there is no order, it deletes and writes until no row
   conflicts. */
handler::Table_flags ha_evenkeel::table_flags() const
{
  const bool in_order= m_in_order && !mixes_unique_keys(table_share);
  const Table_flags unordered= in_order ? 0 : HA_DUPLICATE_KEY_NOT_IN_ORDER;
  const bool before= copies_table(ha_thd()) || checks_before_writing();
  const Table_flags checked= before ? 0 : HA_CHECK_UNIQUE_AFTER_WRITE;
  return unordered | checked | HA_BINLOG_ROW_CAPABLE | HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY |
         HA_CAN_INDEX_BLOBS | HA_PARTIAL_COLUMN_READ | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
         HA_PRIMARY_KEY_IN_READ_INDEX | HA_TABLE_SCAN_ON_INDEX |
         HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_GEOMETRY |
         HA_CAN_SQL_HANDLER | HA_HAS_RECORDS | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS |
         HA_ONLINE_ANALYZE | HA_CONCURRENT_OPTIMIZE | HA_CAN_SKIP_LOCKED | HA_CAN_REPAIR;
}

ulong ha_evenkeel::index_flags(uint index, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  if (is_clustered(index))
    flags|= HA_CLUSTERED_INDEX;
  else
    flags|= HA_DO_INDEX_COND_PUSHDOWN | HA_DO_RANGE_FILTER_PUSHDOWN;
  return flags;
}

void ha_evenkeel::print_error(int error, myf flags)
{
  if (!print_failure(ha_thd(), table_share, error, flags))
    handler::print_error(error, flags);
}

int ha_evenkeel::fail(const ek_error &error)
{
  if (error.kind == EK_DUPLICATE)
  {
    /* An index that this statement's definition does not contain is being built by an ALTER. */
    m_duplicate= strcmp(error.index, "primary") == 0 ? table_share->primary_key : ~0U;
    for (uint i= 0; i < table_share->keys; i++)
    {
      const ek_bytes name= index_name(i);
      if (name.len == strlen(error.index) && !memcmp(name.ptr, error.index, name.len))
        m_duplicate= i;
    }
  }
  return handler_error(ha_thd(), error);
}

/* The engine's name of an index, which stays where it is; empty for the clustered key. */
ek_bytes ha_evenkeel::index_name(uint index) const
{
  if (index >= MAX_KEY || is_clustered(index))
    return {nullptr, 0};
  static const LEX_CSTRING primary= {STRING_WITH_LEN("primary")};
  const LEX_CSTRING &name= is_primary(index) ? primary : table->key_info[index].name;
  return {(const uint8_t *) name.str, name.length};
}

int ha_evenkeel::open(const char *path, int, uint)
{
  const Database_use use;
  if (!use)
    return not_open();
  end_open();
  m_path= path;
  m_name= table_name(path);
  if (!ek_table_exists(evenkeel_db, name()))
    return HA_ERR_NO_SUCH_TABLE;
  m_table= ek_table_new(name());
  m_columns= engine_columns(table);
  ek_column filler;
  m_filler= ek_column_of(evenkeel_db, name(), ek_text(FILLER), &filler);
  m_stored.assign(m_columns.size() + 1, false);
  for (Fill &fill : m_fills)
  {
    fill.table= nullptr;
    fill.filled.assign(table_share->fields, false);
  }
  for (Field **field= table->field; *field; field++)
  {
    int &place= m_columns[(*field)->field_index];
    if (place < 0)
      continue;
    /* By name, because an instant ALTER moves columns in the server's definition only. */
    const LEX_CSTRING &column= (*field)->field_name;
    ek_column there;
    place= ek_column_of(evenkeel_db, name(), {(const uint8_t *) column.str, column.length}, &there);
    if (place < 0 || (size_t) place >= m_stored.size())
    {
      ek_error error;
      make_error(&error, CODE_CatalogDamaged, EK_CORRUPT, "table=%s has no column %s: its definition in the "
                 "server and in the engine differ", m_name.c_str(), column.str);
      return fail(error);
    }
    m_stored[place]= (*field)->stored_in_db();
  }
  ek_error error;
  const int clustered= ek_is_clustered(evenkeel_db, name(), &error);
  if (clustered < 0)
    return fail(error);
  m_clustered= clustered;
  m_chunked= ek_chunk_unit(evenkeel_db, name()) >= 0;
  m_in_order= checks_in_order();
  /* A scan of rows follows the primary key, so the server must not change that key while it scans. */
  key_used_on_scan= clustered ? table_share->primary_key : MAX_KEY;
  m_ranges.init(this, table);
  m_row= ek_row_new();
  m_whole_row= ek_row_new();
  m_last_change= open_last_change(m_name);
  ref_length= 8 + sizeof(uint16);
  if (table_share->primary_key < MAX_KEY && !m_clustered)
    forget_primary_suffix();
  else if (m_clustered)
  {
    const KEY *primary= &table->key_info[table_share->primary_key];
    uint64_t bytes= 0;
    for (uint i= 0; i < primary->user_defined_key_parts; i++)
      bytes+= key_part_bytes_max(&primary->key_part[i]);
    ref_length= (uint) MY_MIN(bytes, KEY_BYTES_MAX) + sizeof(uint16);
  }
  /* HELP plans its reads without asking for the figures, and reads nothing of a table with no rows. A statement that
     asks for them tells why they cannot be read. */
  count_rows(false, &error);
  return 0;
}

/* True if the engine, which checks unique keys in the order of their creation, finds the last duplicate where the
   server looks for it. ALTER TABLE may place new keys before older ones: keys of columns without NULL come first.
   All partitions must agree, and an exchanged partition may differ from the others. */
bool ha_evenkeel::checks_in_order() const
{
  int32_t last= -1;
  uint count= 0;
  for (uint i= 0; i < table_share->keys; i++)
  {
    if (!is_unique(&table->key_info[i]))
      continue;
    count++;
    /* The clustered key is checked first. */
    const ek_bytes which= index_name(i);
    const int32_t place= which.len ? ek_index_place(evenkeel_db, name(), which) : -1;
    if (place < last)
      return false;
    last= place;
  }
  return count < 2 || !table->part_info;
}

/* If the primary key may be too long to cluster on, entries of other keys end with a hidden id: they neither contain
   the primary key nor follow its order. */
void ha_evenkeel::forget_primary_suffix()
{
  for (uint i= 0; i < table_share->keys; i++)
  {
    KEY *key= &table->key_info[i];
    key->ext_key_parts= key->user_defined_key_parts;
    key->ext_key_flags= key->flags;
    key->ext_key_part_map= 0;
  }
  for (Field **field= table->field; *field; field++)
    (*field)->part_of_key= (*field)->part_of_key_not_clustered;
}

int ha_evenkeel::close()
{
  m_copy.reset();
  close_scan();
  end_own();
  end_open();
  return 0;
}

/* Averages how many rows have the same values in the first parts of each key. */
void ha_evenkeel::average_keys()
{
  m_averaged_rows= stats.records;
  for (uint i= 0; i < table_share->keys; i++)
  {
    KEY *key= &table->key_info[i];
    uint64_t rows[MAX_REF_PARTS];
    const uint known= ek_rows_per_key(evenkeel_db, name(), index_name(i), rows,
                                      array_elements(rows));
    const bool is_unique= key->flags & HA_NOSAME;
    const uint whole= is_unique ? key->user_defined_key_parts : key->ext_key_parts;
    for (uint j= 0; j < key->ext_key_parts; j++)
    {
      ulong &average= key->rec_per_key[j];
      if (j + 1 >= whole && (is_unique || known))
        average= 1;
      else if (known)
        average= (ulong) rows[MY_MIN(j, known - 1)];
      else
        average= MY_MAX((ulong)(stats.records / (10 * (j + 1))), 1);
    }
  }
}

/* When the table was created or altered: as in InnoDB, the time of its definition file. */
time_t ha_evenkeel::made_at() const
{
  char path[FN_REFLEN];
  MY_STAT file;
  strxnmov(path, sizeof path - 1, table_share->normalized_path.str, reg_ext, NullS);
  return my_stat(path, &file, MYF(0)) ? file.st_ctime : 0;
}

/* How large the table is. The optimizer treats a table of no rows as one that was not counted; statements that display
   the table (`looked_at`) want the number 0. */
bool ha_evenkeel::count_rows(bool looked_at, ek_error *error)
{
  uint64_t bytes= 0;
  const int64_t rows= ek_rows(evenkeel_db, m_table, &bytes, error);
  if (rows < 0)
    return true;
  stats.records= rows > 0 ? (ha_rows) rows : looked_at ? 0 : 1;
  /* A scan reads these; the pages of long values are counted where a statement displays the table. */
  m_leaf_bytes= stats.data_file_length= bytes;
  stats.mean_rec_length= (ulong) (stats.records ? bytes / stats.records : 0);
  stats.block_size= COST_BLOCK_BYTES;
  return false;
}

int ha_evenkeel::info(uint what)
{
  if (what & HA_STATUS_ERRKEY)
    errkey= m_duplicate;
  if (what & HA_STATUS_AUTO)
    stats.auto_increment_value= table->found_next_number_field ? ek_next_number(evenkeel_db, name())
                                                               : 0;
  if (what & HA_STATUS_TIME)
    stats.update_time= *m_last_change;
  /* For a partitioned table the server asks a partition only for the constant figures. */
  if (what & (HA_STATUS_TIME | HA_STATUS_CONST))
    stats.create_time= made_at();
  if (what & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
  {
    ek_error error;
    if (count_rows(what & (HA_STATUS_TIME | HA_STATUS_OPEN), &error))
      return fail(error);
    /* For statements that display the table, and for ANALYZE. */
    if (what & (HA_STATUS_VARIABLE_EXTRA | HA_STATUS_CONST))
    {
      ek_table_info figures;
      if (ek_table_figures(evenkeel_db, name(), &figures, &error))
        return fail(error);
      stats.index_file_length= figures.index_bytes;
      if (what & HA_STATUS_VARIABLE_EXTRA)
      {
        stats.data_file_length= figures.row_bytes;
        stats.mean_rec_length= (ulong) (stats.records ? figures.row_bytes / stats.records : 0);
      }
    }
    /* Every statement comes here. The averages change with the table's size and by ANALYZE, which asks for the
       constant figures. */
    const ha_rows change= stats.records > m_averaged_rows ? stats.records - m_averaged_rows
                                                          : m_averaged_rows - stats.records;
    if ((what & HA_STATUS_CONST) || change > m_averaged_rows / 8)
      average_keys();
  }
  return 0;
}

int ha_evenkeel::extra(enum ha_extra_function what)
{
  switch (what)
  {
  case HA_EXTRA_INSERT_WITH_UPDATE:
  case HA_EXTRA_WRITE_CAN_REPLACE: m_replaces= true; break;
  case HA_EXTRA_WRITE_CANNOT_REPLACE: m_replaces= false; break;
  case HA_EXTRA_BEGIN_COPY:
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY: begin_copy(what != HA_EXTRA_BEGIN_COPY); break;
  case HA_EXTRA_END_COPY: return end_copy();
  case HA_EXTRA_ABORT_COPY: m_copy.reset(); break;
  default: break;
  }
  return 0;
}

/* A row of long values keeps its snapshot, and the parts that were read, while the handle waits in the server's
   table cache. The server has copied all that it needs. */
void ha_evenkeel::clear_rows()
{
  if (m_row)
    ek_row_clear(m_row);
  if (m_whole_row)
    ek_row_clear(m_whole_row);
}

int ha_evenkeel::reset()
{
  close_scan();
  end_own();
  clear_rows();
  m_peek= m_replaces= false;
  m_numbers.rows_left= 0;
  m_copy.reset();
  m_ranges.dsmrr_close();
  m_range_buffer.reset();
  m_range_bytes= 0;
  m_key.clear();
  free_root(&m_blobs, MYF(0));
  free_longs();
  return 0;
}

/* A partition and a table of the same definition may be exchanged, so that each becomes the other, but a partition has
   no chunks. ALTER judges all other changes. */
bool ha_evenkeel::check_if_incompatible_data(HA_CREATE_INFO *, uint changes)
{
  const auto moves= ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN;
  const bool moved= ha_thd()->lex->alter_info.partition_flags & moves;
  return moved && changes == IS_EQUAL_YES && !m_chunked ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}
