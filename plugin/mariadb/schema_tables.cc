/* INFORMATION_SCHEMA.EVENKEEL_TABLES, _INDEXES, _FOREIGN, _CHUNKS, _JOBS, _WAITS, _TRX, _LOCKS. All need the privilege PROCESS, as
   InnoDB's do. Rows are collected first and stored afterwards, so that the engine holds nothing while the server
   writes. */
#include "schema_tables.h"
#include "backup.h"
#include "chunks.h"
#include "alter.h"
#include "entry.h"
#include "errors.h"
#include "fault.h"
#include "foreign.h"
#include "layout.h"
#include "library.h"
#include "transaction.h"
#include <sql_i_s.h>
#include <sql_acl.h>
#include <sql_show.h>
#include <sql_table.h>

/* Locks shown, at most. */
static const size_t LOCKS_MAX= 10000;

/* A row: texts and numbers in the order of the columns. */
struct Cell
{
  bool is_null= false, is_text= false;
  std::string text;
  ulonglong number= 0;
  Cell(const std::string &t) : is_text(true), text(t) {}
  Cell(const char *t) : is_text(true), text(t) {}
  Cell(ulonglong n) : number(n) {}
  Cell() : is_null(true) {}
};
typedef std::vector<Cell> Line;
typedef std::vector<Line> Lines;

static int store(THD *thd, TABLE *table, const Lines &lines)
{
  for (const Line &line : lines)
  {
    restore_record(table, s->default_values);
    for (size_t i= 0; i < line.size(); i++)
    {
      Field *field= table->field[i];
      const Cell &cell= line[i];
      if (cell.is_null)
      {
        field->set_null();
        continue;
      }
      field->set_notnull();
      if (cell.is_text)
        field->store(cell.text.data(), cell.text.size(), system_charset_info);
      else
        field->store(cell.number, true);
    }
    if (schema_table_store_record(thd, table))
      return 1;
  }
  return 0;
}

static std::string string_of(ek_bytes b) { return std::string((const char *) b.ptr, b.len); }

static std::string hex(ek_bytes b, size_t most)
{
  static const char digits[]= "0123456789abcdef";
  std::string out;
  for (size_t i= 0; i < MY_MIN(b.len, most); i++)
  {
    out.push_back(digits[b.ptr[i] >> 4]);
    out.push_back(digits[b.ptr[i] & 15]);
  }
  return out;
}

static void add_name(void *context, ek_bytes name)
{
  static_cast<std::vector<std::string> *>(context)->push_back(string_of(name));
}

static std::vector<std::string> names()
{
  std::vector<std::string> found;
  calling_back([&] { ek_tables(evenkeel_db, &found, callback<add_name>); });
  return found;
}

/* A table may have been dropped since it was listed. */
static void warn_unless_dropped(const ek_error &error)
{
  if (error.code != CODE_TableMissing)
    warn_of_error(current_thd, error);
}

/* -- TABLES -- */

namespace Show {
static ST_FIELD_INFO tables_fields[]= {
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_ID", ULonglong(), NOT_NULL),
  Column("ROWS_ESTIMATE", ULonglong(), NOT_NULL),
  Column("COLUMNS", ULonglong(), NOT_NULL),
  Column("ROW_FORMATS", ULonglong(), NOT_NULL),
  Column("CLUSTERED_ON", Varchar(16), NOT_NULL),
  Column("INDEXES", ULonglong(), NOT_NULL),
  Column("INDEX_BYTES", ULonglong(), NOT_NULL),
  CEnd()};
}

static void collect_tables(Lines *lines)
{
  for (const std::string &name : names())
  {
    ek_error error;
    ek_table_info info;
    if (ek_table_figures(evenkeel_db, ek_text(name), &info, &error))
    {
      warn_unless_dropped(error);
      continue;
    }
    std::string schema, table;
    server_names(name, &schema, &table);
    lines->push_back({schema, table, (ulonglong) info.id, info.rows_estimate, info.columns,
                      info.row_formats, info.hidden_key ? "hidden id" : "primary key",
                      info.indexes, info.index_bytes});
  }
}

/* -- CHUNKS -- */

namespace Show {
static ST_FIELD_INFO chunks_fields[]= {
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("CHUNK", ULonglong(), NOT_NULL),
  Column("SLOT", ULonglong(), NOT_NULL),
  Column("BEGINS", Varchar(32), NULLABLE),
  Column("ENDS", Varchar(32), NULLABLE),
  Column("ROWS_ESTIMATE", ULonglong(), NOT_NULL),
  Column("BYTES", ULonglong(), NOT_NULL),
  CEnd()};
}

static void add_chunk(void *context, const ek_chunk *chunk)
{
  static_cast<std::vector<ek_chunk> *>(context)->push_back(*chunk);
}

/* The beginning or end of a chunk; NULL if it has none. */
static Cell cell_of_time(int unit, int64_t at)
{
  if (at == INT64_MIN || at == INT64_MAX)
    return Cell();
  return chunk_time(current_thd, unit, at);
}

static void collect_chunks(Lines *lines)
{
  for (const std::string &name : names())
  {
    ek_error error;
    std::vector<ek_chunk> chunks;
    const int unit= ek_chunk_unit(evenkeel_db, ek_text(name));
    if (unit < 0)
      continue;
    if (calling_back([&] { return ek_chunks(evenkeel_db, ek_text(name), &chunks, callback<add_chunk>, &error); }))
    {
      warn_unless_dropped(error);
      continue;
    }
    std::string schema, table;
    server_names(name, &schema, &table);
    for (const ek_chunk &chunk : chunks)
      lines->push_back({schema, table, (ulonglong) chunk.number, (ulonglong) chunk.slot, cell_of_time(unit, chunk.from),
                        cell_of_time(unit, chunk.to), (ulonglong) chunk.rows, (ulonglong) chunk.bytes});
  }
}

/* -- INDEXES -- */

namespace Show {
static ST_FIELD_INFO indexes_fields[]= {
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("INDEX_NAME", Varchar(NAME_CHAR_LEN + 1), NOT_NULL),
  Column("STATE", Varchar(8), NOT_NULL),
  Column("RUNS", ULonglong(), NOT_NULL),
  Column("RUN_ENTRIES", ULonglong(), NOT_NULL),
  Column("RUN_BYTES", ULonglong(), NOT_NULL),
  CEnd()};
}

struct Index_lines
{
  std::string schema, table;
  Lines lines;
};

static void add_index(void *context, ek_bytes name, uint8_t valid, uint64_t runs, uint64_t entries,
                      uint64_t bytes)
{
  Index_lines *found= static_cast<Index_lines *>(context);
  found->lines.push_back({found->schema, found->table, without_mark(string_of(name)),
                          valid ? "valid" : "building", runs, entries, bytes});
}

static void collect_indexes(Lines *lines)
{
  Index_lines found;
  for (const std::string &name : names())
  {
    ek_error error;
    server_names(name, &found.schema, &found.table);
    if (calling_back([&] { return ek_indexes(evenkeel_db, ek_text(name), &found, callback<add_index>, &error); }))
      warn_unless_dropped(error);
  }
  *lines= found.lines;
}

/* -- FOREIGN -- */

namespace Show {
static ST_FIELD_INFO foreign_fields[]= {
  Column("CONSTRAINT_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("COLUMNS", Varchar(1024), NOT_NULL),
  Column("REFERENCED_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("REFERENCED_TABLE", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("REFERENCED_COLUMNS", Varchar(1024), NOT_NULL),
  Column("ON_DELETE", Varchar(9), NOT_NULL),
  Column("ON_UPDATE", Varchar(9), NOT_NULL),
  Column("STATE", Varchar(14), NOT_NULL),
  CEnd()};
}

static std::string joined(const std::vector<std::string> &names)
{
  std::string all;
  for (const std::string &name : names)
    all+= (all.empty() ? "" : ", ") + name;
  return all;
}

static void collect_foreign(Lines *lines)
{
  static const char *const actions[KEY_ACTIONS]= {"RESTRICT", "NO ACTION", "CASCADE", "SET NULL"};
  for (const std::string &table : names())
    for (const Foreign_key_of &key : foreign_keys_of(table, false))
    {
      std::string schema, name, of_schema, of;
      server_names(key.child, &schema, &name);
      server_names(key.parent, &of_schema, &of);
      lines->push_back({key.name, schema, name, joined(key.columns), of_schema, of, joined(key.parent_columns),
                        actions[key.on_delete], actions[key.on_update],
                        key.is_awaiting ? "no such parent" : "enforced"});
    }
}

/* -- JOBS -- */

namespace Show {
static ST_FIELD_INFO jobs_fields[]= {
  Column("KIND", Varchar(16), NOT_NULL),
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NULLABLE),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NULLABLE),
  Column("WHAT", Varchar(512), NULLABLE),
  Column("PHASE", Varchar(64), NOT_NULL),
  Column("DONE", ULonglong(), NULLABLE),
  Column("TOTAL", ULonglong(), NULLABLE),
  Column("UNIT", Varchar(16), NULLABLE),
  Column("THREAD_ID", ULonglong(), NULLABLE),
  Column("PERCENT_DONE", ULonglong(), NULLABLE),
  Column("SECONDS_LEFT", ULonglong(), NULLABLE),
  CEnd()};
}

struct Background
{
  ulonglong merges= 0, reverts= 0, warmed= 0, to_warm= 0;
};

static void background(void *context, ek_bytes name, ek_bytes, uint64_t value)
{
  Background *now= static_cast<Background *>(context);
  const std::string figure= string_of(name);
  if (figure == "compactions_started")
    now->merges+= value;
  else if (figure == "compactions_finished" || figure == "compactions_abandoned")
    now->merges-= value;
  else if (figure == "rolling_back_txns")
    now->reverts= value;
  else if (figure == "warm_pages_read")
    now->warmed= value;
  else if (figure == "warm_pages_left")
    now->to_warm= value;
}

static void add_compaction(void *context, ek_bytes table, ek_bytes index, uint64_t runs, uint64_t done,
                      uint64_t bytes, uint8_t required)
{
  std::string schema, name;
  if (table.len)
    server_names(string_of(table), &schema, &name);
  const Cell in= table.len ? Cell(schema) : Cell(), of= table.len ? Cell(name) : Cell();
  const std::string what= table.len ? without_mark(string_of(index))
                                    : "an index that is being built or dropped";
  const std::string phase= std::string(required ? "compacting for writers, " : "compacting, ") +
                           std::to_string(runs) + " runs";
  const ulonglong percent= bytes ? 100 * done / bytes : 0;
  static_cast<Lines *>(context)->push_back({"compaction", in, of, what, phase, (ulonglong) done,
                                            (ulonglong) bytes, "bytes", Cell(), percent, Cell()});
}

static void collect_jobs(Lines *lines)
{
  each_build([lines](const Build_figures &build) {
    std::string schema, table;
    server_names(build.table, &schema, &table);
    const char *kind= build.is_repair ? "repair" : build.is_copy ? "table copy" : "index build";
    lines->push_back({kind, schema, table, build.indexes,
                      build.phase, build.rows_done, build.rows_total, "rows", (ulonglong) build.thread_id,
                      (ulonglong) build.done_ppm / 10000,
                      build.left_s == EK_UNKNOWN_S ? Cell() : Cell((ulonglong) build.left_s)});
  });
  each_backup([lines](const Backup_figures &backup) {
    const ulonglong percent= backup.bytes_expected ? 100 * backup.bytes / backup.bytes_expected : 0;
    lines->push_back({"backup", Cell(), Cell(), backup.what, backup.phase, (ulonglong) backup.bytes,
                      (ulonglong) backup.bytes_expected, "bytes", (ulonglong) backup.thread_id, percent, Cell()});
  });
  Background now;
  calling_back([&] { ek_figures(evenkeel_db, &now, callback<background>); });
  const size_t before= lines->size();
  calling_back([&] { ek_compactions(evenkeel_db, lines, callback<add_compaction>); });
  /* Counters are read one by one, so the difference may be momentarily too low. */
  const longlong together= (longlong) now.merges - (longlong)(lines->size() - before);
  if (together > 0)
    lines->push_back({"compaction", Cell(), Cell(), "small indexes, together", "compacting",
                      (ulonglong) together, Cell(), "indexes", Cell(), Cell(), Cell()});
  if (now.to_warm)
  {
    const ulonglong all= now.warmed + now.to_warm;
    lines->push_back({"warm-up", Cell(), Cell(), "pages in use before the restart", "reading",
                      now.warmed, all, "pages", Cell(), 100 * now.warmed / all, Cell()});
  }
  if (now.reverts)
    lines->push_back({"revert", Cell(), Cell(), "rows of aborted transactions", "reverting",
                      now.reverts, Cell(), "transactions", Cell(), Cell(), Cell()});
}

/* -- STALLS -- */

namespace Show {
static ST_FIELD_INFO waits_fields[]= {
  Column("CAUSE", Varchar(32), NOT_NULL),
  Column("WAITS", ULonglong(), NOT_NULL),
  Column("WAITS_OVER_1MS", ULonglong(), NOT_NULL),
  Column("TIME_US", ULonglong(), NOT_NULL),
  Column("LONGEST_US", ULonglong(), NOT_NULL),
  CEnd()};
}

static void add_wait(void *context, ek_bytes cause, uint64_t count, uint64_t over_1ms, uint64_t us,
                     uint64_t max_us)
{
  static_cast<Lines *>(context)->push_back({string_of(cause), count, over_1ms, us, max_us});
}

static void collect_waits(Lines *lines)
{
  calling_back([&] { ek_waits(evenkeel_db, lines, callback<add_wait>); });
}

/* -- TRX -- */

namespace Show {
static ST_FIELD_INFO trx_fields[]= {
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("STATE", Varchar(16), NOT_NULL),
  Column("ROW_OPERATIONS", ULonglong(), NOT_NULL),
  Column("WAITS_FOR", ULonglong(), NULLABLE),
  Column("XID", Varchar(280), NULLABLE),
  Column("CONNECTION_ID", ULonglong(), NOT_NULL),
  CEnd()};
}

static void add_txn(void *context, uint64_t id, uint8_t prepared, uint64_t operations, ek_bytes xid,
                    uint64_t waits_for, uint64_t tag)
{
  const char *state= prepared ? "prepared" : waits_for ? "lock wait" : "running";
  static_cast<Lines *>(context)->push_back({id, state, operations,
                                            waits_for ? Cell(waits_for) : Cell(),
                                            xid.len ? Cell(hex(xid, 140)) : Cell(),
                                            connection_of(tag)});
}

static void collect_trx(Lines *lines)
{
  calling_back([&] { ek_txns(evenkeel_db, lines, callback<add_txn>); });
}

/* -- LOCKS -- */

namespace Show {
static ST_FIELD_INFO locks_fields[]= {
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
  Column("INDEX_NAME", Varchar(NAME_CHAR_LEN + 1), NULLABLE),
  Column("MODE", Varchar(1), NOT_NULL),
  Column("KIND", Varchar(8), NOT_NULL),
  Column("STATE", Varchar(8), NOT_NULL),
  Column("KEY_BYTES", Varchar(128), NOT_NULL),
  CEnd()};
}

static void add_lock(void *context, uint64_t txn, ek_bytes table, ek_bytes index, uint8_t exclusive,
                     uint8_t granted, uint8_t range, ek_bytes key)
{
  std::string schema, name;
  server_names(string_of(table), &schema, &name);
  const Cell of_index= index.len ? Cell(without_mark(string_of(index))) : Cell();
  static_cast<Lines *>(context)->push_back({txn, schema, name, of_index,
                                            exclusive ? "X" : "S", range ? "range" : "key",
                                            granted ? "held" : "waiting", hex(key, 64)});
}

static void collect_locks(Lines *lines)
{
  calling_back([&] { ek_locks(evenkeel_db, LOCKS_MAX, lines, callback<add_lock>); });
}

/* Users who may not see other users' work get no rows. The server holds the plugin of this table meanwhile, not the
   engine's. */
template <void (*collect)(Lines *)> static int fill(THD *thd, TABLE_LIST *tables, COND *)
{
  if (check_global_access(thd, PROCESS_ACL, true))
    return 0;
  Lines lines;
  {
    const Database_use use;
    if (!use)
    {
      warn_not_open(thd);
      return 0;
    }
#ifdef EVENKEEL_PLANTED
    my_sleep(1000UL * fault_pause_ms);
#endif
    collect(&lines);
  }
  return store(thd, tables->table, lines);
}

template <void (*collect)(Lines *)> static int init(void *p, ST_FIELD_INFO *fields)
{
  /* The server loads these tables also if it has not loaded the engine. */
  if (layout_refused(nullptr))
    return 1;
  keep_uninstalled_plugins();
  ST_SCHEMA_TABLE *schema= (ST_SCHEMA_TABLE *) p;
  schema->fields_info= fields;
  schema->fill_table= entry<fill<collect>, 1>;
  return 0;
}

int evenkeel_tables_init(void *p) { return init<collect_tables>(p, Show::tables_fields); }
int evenkeel_indexes_init(void *p) { return init<collect_indexes>(p, Show::indexes_fields); }
int evenkeel_foreign_init(void *p) { return init<collect_foreign>(p, Show::foreign_fields); }
int evenkeel_chunks_init(void *p) { return init<collect_chunks>(p, Show::chunks_fields); }
int evenkeel_jobs_init(void *p) { return init<collect_jobs>(p, Show::jobs_fields); }
int evenkeel_waits_init(void *p) { return init<collect_waits>(p, Show::waits_fields); }
int evenkeel_trx_init(void *p) { return init<collect_trx>(p, Show::trx_fields); }
int evenkeel_locks_init(void *p) { return init<collect_locks>(p, Show::locks_fields); }
