/* The SQL function evenkeel_drop_chunks(TABLE, BEFORE), a plugin of the same library. The server guards no function that
   changes data, so this one looks itself for what DROP PARTITION would need. It is the only item of a DO or of a SELECT
   without tables, so that it runs once. The server writes neither to its binlog; this function writes a DO with literals,
   which replicas repeat. */
#include "chunks.h"
#include "entry.h"
#include "errors.h"
#include "fault_injection.h"
#include "layout.h"
#include "library.h"
#include "transaction.h"
#include <item_create.h>
#include <mysql/plugin_function.h>
#include <sql_parse.h>
#include <sql_table.h>
#include <sql_time.h>
#include <tztime.h>

/* The arguments of a call. */
struct Drop_of
{
  std::string schema, table, engine_name;
  int64_t before= 0;
  /* `before`, for the binlog. */
  std::string literal;
};

static bool refuse(const char *why)
{
  my_printf_error(ER_WRONG_USAGE, "EVENKEEL: evenkeel_drop_chunks %s", MYF(0), why);
  return false;
}

static std::string text_of(const String *s) { return s ? std::string(s->ptr(), s->length()) : std::string(); }

/* True if the function is all that the statement does. */
static bool is_alone(THD *thd, const Item *function)
{
  LEX *lex= thd->lex;
  if (lex->describe || lex->query_tables || lex->unit.is_unit_op() ||
      lex->context_analysis_only & ~CONTEXT_ANALYSIS_ONLY_PREPARE)
    return false;
  if (lex->sql_command == SQLCOM_DO)
    return lex->insert_list && lex->insert_list->elements == 1 && lex->insert_list->head() == function;
  const List<Item> &items= lex->first_select_lex()->item_list;
  return lex->sql_command == SQLCOM_SELECT && items.elements == 1 &&
         const_cast<List<Item> &>(items).head() == function && !lex->first_select_lex()->first_inner_unit();
}

static bool refuse_place()
{
  return refuse("must be the only item of a DO, or of a SELECT without tables, and not in EXPLAIN, a view, a trigger or a "
                "stored function");
}

/* The table that a text such as 'db.readings' names. */
static bool find_table(THD *thd, const std::string &named, Drop_of *to)
{
  const size_t dot= named.find('.');
  to->schema= dot == std::string::npos ? std::string(thd->db.str ? thd->db.str : "") : named.substr(0, dot);
  to->table= dot == std::string::npos ? named : named.substr(dot + 1);
  if (to->schema.empty() || to->table.empty())
    return refuse("needs the name of a table, such as 'db.readings'");
  char path[FN_REFLEN + 1];
  build_table_filename(path, sizeof path - 1, to->schema.c_str(), to->table.c_str(), "", 0);
  to->engine_name= table_name(path);
  return true;
}

/* The user may drop the table, and the server may be written to. */
static bool may_drop(THD *thd, const Drop_of &of)
{
  TABLE_LIST table;
  const LEX_CSTRING schema= {of.schema.data(), of.schema.size()}, name= {of.table.data(), of.table.size()};
  table.init_one_table(&schema, &name, nullptr, TL_WRITE);
  if (check_table_access(thd, DROP_ACL, &table, false, 1, false))
    return false;
  if (opt_readonly && !thd->slave_thread && !(thd->security_ctx->master_access & PRIV_IGNORE_READ_ONLY))
  {
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--read-only");
    return false;
  }
  return true;
}

/* Keeps ALTER, DROP and RENAME of the table, LOCK TABLES and backups out until the statement ends. */
static bool take_locks(THD *thd, const Drop_of &of)
{
  MDL_request table, all;
  MDL_REQUEST_INIT(&all, MDL_key::BACKUP, "", "", MDL_BACKUP_DDL, MDL_STATEMENT);
  MDL_REQUEST_INIT(&table, MDL_key::TABLE, of.schema.c_str(), of.table.c_str(), MDL_SHARED_WRITE, MDL_STATEMENT);
  const double seconds= (double) thd->variables.lock_wait_timeout;
  return !thd->mdl_context.acquire_lock(&all, seconds) && !thd->mdl_context.acquire_lock(&table, seconds);
}

/* Reads the time before which chunks go, in the unit of the table's times. */
static bool read_before(THD *thd, Item *given, int unit, Drop_of *to)
{
  if (unit < EK_UNIT_PACKED_DAYS)
  {
    if (given->cmp_type() != INT_RESULT)
      return refuse("needs a whole number here, because the table's times are numbers: in the unit of its CHUNK_UNIT");
    to->before= given->val_int();
    if (given->null_value)
      return refuse("needs a time, which is not NULL");
    if (given->unsigned_flag && to->before < 0)
      to->before= INT64_MAX;
    to->literal= std::to_string(to->before);
    return true;
  }
  const Datetime when(thd, given, Datetime::Options(TIME_NO_ZERO_IN_DATE | TIME_NO_ZERO_DATE, thd));
  if (!when.is_valid_datetime())
    return refuse("needs a date, or a date and time, such as '2026-01-01 00:00:00'");
  const MYSQL_TIME &t= *when.get_mysql_time();
  uint failed= 0;
  switch (unit)
  {
  case EK_UNIT_PACKED_DAYS: to->before= (chunk_seconds(t) + 86399) / 86400; break;
  case EK_UNIT_PACKED_SECONDS: to->before= chunk_seconds(t); break;
  default:
    to->before= TIME_to_timestamp(thd, &t, &failed);
    if (failed == ER_WARN_DATA_OUT_OF_RANGE || (failed && !to->before))
      return refuse("needs a time that a TIMESTAMP may have");
  }
  char text[MAX_DATE_STRING_REP_LENGTH];
  to->literal= "'" + std::string(text, my_datetime_to_str(&t, text, 0)) + "'";
  return true;
}

/* A text as a literal in any SQL mode. */
static std::string literal(const std::string &text)
{
  static const char digits[]= "0123456789abcdef";
  std::string out= "x'";
  if (text.find_first_of("'\\") == std::string::npos)
    return "'" + text + "'";
  for (const uchar c : text)
    out+= {digits[c >> 4], digits[c & 15]};
  return out + "'";
}

static bool write_binlog(THD *thd, const Drop_of &of)
{
  if (plant("ChunkDropUnlogged") || !mysql_bin_log.is_open() || !(thd->variables.option_bits & OPTION_BIN_LOG))
    return true;
  const std::string statement= "DO evenkeel_drop_chunks(" + literal(of.schema + "." + of.table) + ", " + of.literal + ")";
  return !thd->binlog_query(THD::STMT_QUERY_TYPE, statement.data(), statement.size(), false, true, false, 0);
}

typedef std::vector<std::pair<uint64_t, uint64_t>> Kept;

static void add_kept(void *to, uint64_t chunk, uint64_t txn) { static_cast<Kept *>(to)->push_back({chunk, txn}); }

/* The number of chunks that are gone, or -1 with the error raised. */
static longlong drop_chunks(THD *thd, Item **args)
{
  if (thd->in_sub_stmt)
  {
    refuse_place();
    return -1;
  }
  if ((thd->in_active_multi_stmt_transaction() || thd->locked_tables_mode) && !plant("ChunksDroppedInTransaction"))
  {
    my_error(ER_CANT_DO_THIS_DURING_AN_TRANSACTION, MYF(0));
    return -1;
  }
  const Database_use use;
  if (!use)
  {
    not_open();
    return -1;
  }
  Drop_of of;
  String space;
  if (!find_table(thd, text_of(args[0]->val_str(&space)), &of) || !may_drop(thd, of) || !take_locks(thd, of))
    return -1;
  const int unit= ek_chunk_unit(evenkeel_db, ek_text(of.engine_name));
  if (unit < 0)
  {
    my_printf_error(ER_WRONG_USAGE, "EVENKEEL: '%s.%s' is no chunked table of this engine", MYF(0), of.schema.c_str(),
                    of.table.c_str());
    return -1;
  }
  if (!read_before(thd, args[1], unit, &of))
    return -1;
  ek_error error;
  Kept kept;
  const ek_schema_wait wait= schema_wait(thd);
  const int64_t dropped= calling_back([&] {
    return ek_drop_chunks(evenkeel_db, ek_text(of.engine_name), of.before, &wait, &kept, callback<add_kept>, &error);
  });
  if (dropped < 0)
  {
    raise_error(thd, error);
    return -1;
  }
  for (const auto &[chunk, txn] : kept)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_UNKNOWN_ERROR, "EVENKEEL: chunk %llu is kept, because "
                        "transaction %llu has changed or locked rows in it (INFORMATION_SCHEMA.EVENKEEL_TRX): call again",
                        (ulonglong) chunk, (ulonglong) txn);
  return write_binlog(thd, of) ? dropped : -1;
}

namespace
{
class Item_drop_chunks : public Item_longlong_func
{
public:
  Item_drop_chunks(THD *thd, Item *table, Item *before) : Item_longlong_func(thd, table, before) {}
  LEX_CSTRING func_name_cstring() const override { return {STRING_WITH_LEN("evenkeel_drop_chunks")}; }
  bool fix_length_and_dec(THD *thd) override
  {
    set_maybe_null();
    return !is_alone(thd, this) && !refuse_place();
  }
  /* The value is never computed in advance. */
  table_map used_tables() const override { return RAND_TABLE_BIT; }
  bool const_item() const override { return false; }
  bool is_expensive() override { return true; }
  bool check_vcol_func_processor(void *arg) override
  {
    return mark_unsupported_function(func_name(), "()", arg, VCOL_IMPOSSIBLE);
  }
  longlong val_int() override
  {
    THD *thd= current_thd;
    const longlong dropped= guarded(-1LL, [&] { return drop_chunks(thd, args); });
    null_value= dropped < 0;
    /* DO hides errors, also on a replica. */
    if (null_value && thd->slave_thread)
      sql_print_warning("EVENKEEL: %s: %s", thd->query(), thd->is_error() ? thd->get_stmt_da()->message() : "failed");
    return null_value ? 0 : dropped;
  }
  Item *shallow_copy(THD *thd) const override { return get_item_copy<Item_drop_chunks>(thd, this); }
};

class Create_drop_chunks : public Create_func_arg2
{
public:
  Item *create_2_arg(THD *thd, Item *table, Item *before) override
  {
    thd->lex->safe_to_cache_query= 0;
    thd->lex->uncacheable(UNCACHEABLE_SIDEEFFECT);
    return new (thd->mem_root) Item_drop_chunks(thd, table, before);
  }
};
}

static Create_drop_chunks create_drop_chunks;
Plugin_function evenkeel_drop_chunks_function(&create_drop_chunks);

/* The server loads the function also if it has not loaded the engine. */
int evenkeel_drop_chunks_init(void *)
{
  if (layout_refused(nullptr))
    return 1;
  keep_uninstalled_plugins();
  return 0;
}
