/* ALTER TABLE in place: indexes are built while others read and write, and columns change without rewriting rows.
   The server's copying ALTER does the rest.
   1. prepare (nobody else uses the table): the build of new indexes begins, under provisional names. The call
      returns when every writer from now on maintains them (F1).
   2. inplace (others read and write): waits for the build, shows its progress and heeds KILL (a build of few rows
      has ended already); looks for NULL in columns that become NOT NULL (`not_null.cc`).
   3. commit (nobody else uses the table): one change of the engine's catalog gives the indexes their names and makes
      all other changes; `table_version` differs from there on.
   The server calls each phase for every partition of a table. All partitions share one build, which begins with the
   last partition, and one change, which is made at the first: all are changed or none. After a crash the server asks
   for the state of the change by the name of the table, of which the engine knows only partitions, and without a
   `table_version`. So the change is marked with the version of the server's new definition until the statement ends. */
#include "ha_evenkeel.h"
#include "alter.h"
#include "chunks.h"
#include "entry.h"
#include "columns.h"
#include "ddl.h"
#include "foreign.h"
#include "fault_injection.h"
#include "index_build.h"
#include "owned.h"
#include "not_null.h"
#include "transaction.h"
#include <partition_info.h>
#include <algorithm>
#include <list>
#include <memory>

/* Changes of which the engine stores nothing: only the server's definition changes. */
static const alter_table_operations METADATA=
  ALTER_COLUMN_DEFAULT | ALTER_CHANGE_CREATE_OPTION | ALTER_RENAME | ALTER_CHANGE_INDEX_COMMENT |
  ALTER_INDEX_IGNORABILITY | ALTER_INDEX_ORDER | ALTER_DROP_CHECK_CONSTRAINT |
  ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER |
  ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_INDEX_LENGTH | ALTER_COLUMN_COLUMN_FORMAT;
/* Changes that are one change of the engine's catalog. */
static const alter_table_operations INSTANT=
  ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_COLUMN_NAME |
  ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_COLUMN_NULLABLE |
  ALTER_COLUMN_NOT_NULLABLE | ALTER_RENAME_INDEX |
  ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_DROP_FOREIGN_KEY;
static const alter_table_operations BUILD=
  ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;
/* Changes that look at the rows that are there. */
static const alter_table_operations LOOKS= BUILD | ALTER_COLUMN_NOT_NULLABLE | ALTER_ADD_FOREIGN_KEY;

/* A column with a longer default is added by copying (limits of the engine's catalog). */
static const size_t DEFAULT_BYTES_MAX= 512;

static ek_bytes text(const LEX_CSTRING &s) { return {(const uint8_t *) s.str, s.length}; }

static bool equal(const LEX_CSTRING &a, const LEX_CSTRING &b)
{
  return a.length == b.length && memcmp(a.str, b.str, a.length) == 0;
}

/* Of the name of an index that is being built, which no name of a user begins with: it is no
   character of identifiers. */
static const std::string PROVISIONAL((const char *) ek_provisional().ptr, ek_provisional().len);

std::string without_mark(const std::string &index)
{
  return index.compare(0, PROVISIONAL.size(), PROVISIONAL) ? index : index.substr(PROVISIONAL.size());
}

/* State of an ALTER for a table or a partition between the server's calls. */
class Alter_context : public inplace_alter_handler_ctx
{
public:
  explicit Alter_context(ha_evenkeel *of) : owner(of) {}
  ha_evenkeel *const owner;
  /* The build of all partitions, in the context of the first. */
  std::unique_ptr<Build> build;
  /* The watch of columns that become NOT NULL, in this table or partition. */
  std::unique_ptr<Null_watch> nulls;
  /* The foreign keys that the table gets. */
  Foreign_specs foreign;
  bool has_proved= false;
};

/* The contexts of all partitions, or of the table. */
static std::vector<Alter_context *> contexts_of(const Alter_inplace_info *info)
{
  std::vector<Alter_context *> all;
  if (info->group_commit_ctx)
    for (inplace_alter_handler_ctx **context= info->group_commit_ctx; *context; context++)
      all.push_back(static_cast<Alter_context *>(*context));
  else if (info->handler_ctx)
    all.push_back(static_cast<Alter_context *>(info->handler_ctx));
  return all;
}

/* The handlers whose tables are changed as one: of all partitions that this ALTER was given, or this one. */
std::vector<ha_evenkeel *> ha_evenkeel::changed_together(const Alter_inplace_info *info)
{
  std::vector<ha_evenkeel *> all;
  for (const Alter_context *context : contexts_of(info))
    all.push_back(context->owner);
  if (std::find(all.begin(), all.end(), this) == all.end())
    all.push_back(this);
  return all;
}

/* -- what is to change -- */

/* For each field of the new definition its old field, null for a new one. */
static std::vector<const Field *> old_fields(const Alter_inplace_info *info)
{
  std::vector<const Field *> old;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *field= fields++)
    old.push_back(field->field);
  return old;
}

static const KEY *primary_of(const TABLE *table)
{
  const uint key= table->s->primary_key;
  return key < MAX_KEY ? &table->key_info[key] : nullptr;
}

/* True if the primary key (declared, or the first unique key without NULLs) stays the same. */
static bool same_primary(const TABLE *before, const TABLE *after,
                         const std::vector<const Field *> &old)
{
  const KEY *a= primary_of(before), *b= primary_of(after);
  if (!a || !b)
    return a == b;
  if (a->user_defined_key_parts != b->user_defined_key_parts)
    return false;
  for (uint i= 0; i < a->user_defined_key_parts; i++)
  {
    const KEY_PART_INFO *p= &a->key_part[i], *q= &b->key_part[i];
    const Field *was= old[q->fieldnr - 1];
    if (!was || was->field_index + 1 != p->fieldnr ||
        (p->key_part_flag & HA_REVERSE_SORT) != (q->key_part_flag & HA_REVERSE_SORT))
      return false;
  }
  return true;
}

/* True if the engine stores the values of a column, including a virtual column that is in a key. */
static bool is_kept(const TABLE *table, const Field *field)
{
  return field->stored_in_db() || in_a_key(table, field);
}

/* True if the engine has no column of the table. */
static bool has_no_column(const TABLE *table)
{
  for (Field **field= table->field; *field; field++)
    if (is_kept(table, *field))
      return false;
  return true;
}

/* True if all virtual columns in the new keys were in keys before, unchanged, so that the engine has their values.
   (A change of their expressions has a flag of its own.) */
static bool has_virtual_keys(const TABLE *before, const TABLE *after,
                             const std::vector<const Field *> &old)
{
  for (uint i= 0; after->field[i]; i++)
  {
    const Field *field= after->field[i], *was= old[i];
    if (field->stored_in_db() || !in_a_key(after, field))
      continue;
    if (!was || was->stored_in_db() || !in_a_key(before, was) ||
        !equal(was->field_name, field->field_name))
      return false;
    const Column now= Column::of(field), then= Column::of(was);
    if (now.how != then.how || now.type_code != then.type_code || now.a != then.a || now.b != then.b)
      return false;
  }
  return true;
}

/* True if a default expression has one value for all existing rows: a constant, or a time such as CURRENT_TIMESTAMP.
   (For other types no check would tell that a value does not fit.) The record of the new definition then holds the
   value. */
static bool is_one_value(const Field *field)
{
  const Virtual_column_info *given= field->default_value;
  if (!given->flags)
    return true;
  if (given->flags & ~(VCOL_SESSION_FUNC | VCOL_TIME_FUNC) || given->expr->used_tables())
    return false;
  if (field->cmp_type() != TIME_RESULT || given->expr->cmp_type() != TIME_RESULT)
    return false;
  if (given->expr->save_in_field_no_warnings(const_cast<Field *>(field), false))
    return false;
  /* For a NOT NULL column NULL becomes another value; the copying ALTER refuses it. */
  return field->real_maybe_null() || !given->expr->null_value;
}

/* True if a column becomes NOT NULL. */
static bool loses_null(const Field *field, const Field *was)
{
  return was && was->real_maybe_null() && !field->real_maybe_null();
}

/* True if a search for NULL is enough for that. A NULL is then an error; where the copying ALTER would convert it to
   another value, the table has to be copied. */
static bool may_lose_null(THD *thd, const Field *field, const Field *was)
{
  return thd->is_strict_mode() && field->type() != MYSQL_TYPE_TIMESTAMP && !field->vcol_info &&
         !was->vcol_info;
}

/* The value that existing rows show for a new column; false if it is not one value. */
static bool default_of(const Field *field, ek_value *value)
{
  if ((field->default_value && !is_one_value(field)) || (field->flags & AUTO_INCREMENT_FLAG))
    return false;
  const TABLE *table= field->table;
  const uchar *record= field->default_value ? table->record[0] : table->s->default_values;
  if (field->type() == MYSQL_TYPE_GEOMETRY && !field->real_maybe_null())
    return false;
  *value= value_of(field, record, nullptr);
  return value->bytes.len <= DEFAULT_BYTES_MAX;
}

const char *ha_evenkeel::not_in_place(TABLE *altered, Alter_inplace_info *info)
{
  const alter_table_operations flags= info->handler_flags;
  if (const char *why= copied_for_chunks(m_chunked, table, altered, !(flags & ~(METADATA | ALTER_PARTITIONED))))
    return why;
  if (flags & ~(METADATA | INSTANT | LOOKS | ALTER_PARTITIONED))
    return "this change";
  if (!table->part_info != !altered->part_info || info->alter_info->partition_flags)
    return "a change of partitions at once";
  /* After a crash among the renamings the server would continue with the handler of one partition, by the name of
     the table, and leave the partitions behind (its DDL log, DDL_ALTER_TABLE_PHASE_INPLACE). */
  if (table->part_info && flags & ALTER_RENAME)
    return "a new name of a partitioned table at once";
  if (info->ignore)
    return "ALTER IGNORE";
  /* The server checks the rows of a sequence, which has one, only while it copies them. */
  if ((info->create_info->used_fields & HA_CREATE_USED_SEQUENCE) && !plant("SequenceInPlace"))
    return "SEQUENCE";
  const std::vector<const Field *> old= old_fields(info);
  if (flags & ALTER_ADD_FOREIGN_KEY && adds_key_of_new_column(altered, old, info->alter_info))
    return "a foreign key of a new or changed column";
  if (!has_virtual_keys(table, altered, old))
    return "other virtual columns in indexes";
  if (!same_primary(table, altered, old))
    return "another primary key";
  const Field *number= altered->found_next_number_field;
  const Field *number_before= number ? old[number->field_index] : nullptr;
  if (number_before != (number ? table->found_next_number_field : nullptr))
    return "another AUTO_INCREMENT column";
  if ((info->create_info->used_fields & HA_CREATE_USED_AUTO) &&
      info->create_info->auto_increment_value < ek_next_number(evenkeel_db, name()))
    return "a lower AUTO_INCREMENT";
  if (m_filler < 0 && has_no_column(altered) && !plant("LastColumnInPlace"))
    return "virtual columns alone";
  std::vector<ek_widen> wider;
  for (uint i= 0; altered->field[i]; i++)
  {
    const Field *field= altered->field[i], *was= old[i];
    if (loses_null(field, was) && !may_lose_null(ha_thd(), field, was))
      return "NOT NULL where NULL would become another value";
    if (!field->stored_in_db())
      continue;
    const Column now= Column::of(field);
    if (!was)
    {
      ek_value value;
      if (info->error_if_not_empty || !default_of(field, &value))
        return "a new column whose default is not one value";
      continue;
    }
    const Column before= Column::of(was);
    if (!was->stored_in_db() || now.how != before.how || now.type_code != before.type_code ||
        (now.a != before.a && !(now.type_code == Column::BYTES_CODE && now.a > before.a)))
      return "another type of a column";
    ek_column there;
    if (ek_column_of(evenkeel_db, name(), text(was->field_name), &there) < 0)
      return "a column unknown to the engine";
    if (field->real_maybe_null() && !(there.flags & EK_NULLABLE))
      return "NULL in a column of a key";
    if (takes_null_of_cascade(m_name, info, field, was, there.flags & EK_NULLABLE))
      return "NOT NULL where a cascade may write NULL";
    if (now.a > there.a)
      wider.push_back({text(was->field_name), now.a});
  }
  if (!wider.empty() && ek_may_widen(evenkeel_db, name(), wider.data(), wider.size()) != 1)
    return "a primary key too long for a page";
  return nullptr;
}

/* The server takes the lowest answer of the partitions, and "not in place" is not the lowest. If the flags have
   changed it asks all partitions again. So a partition that refuses makes the others refuse, too. */
static enum_alter_inplace_result refuse(Alter_inplace_info *info)
{
  if (info->handler_flags & ALTER_PARTITIONED)
    info->handler_flags|= ALTER_RECREATE_TABLE;
  return HA_ALTER_INPLACE_NOT_SUPPORTED;
}

enum_alter_inplace_result
ha_evenkeel::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  static thread_local char reason[96];
  const alter_table_operations refused= ALTER_PARTITIONED | ALTER_RECREATE_TABLE;
  if ((info->handler_flags & refused) == refused && info->unsupported_reason)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (loses_key_columns(info) || changes_key_text(info))
    return HA_ALTER_ERROR;
  if (const char *why= not_in_place(altered, info))
  {
    snprintf(reason, sizeof reason, "EVENKEEL copies the table for %s", why);
    info->unsupported_reason= reason;
    return refuse(info);
  }
  if (!(info->handler_flags & LOOKS))
    return HA_ALTER_INPLACE_INSTANT;
  Build build(ha_thd());
  if (const char *why= plan_build(altered, info, &build))
  {
    snprintf(reason, sizeof reason, "EVENKEEL does not support %s", why);
    info->unsupported_reason= reason;
    return refuse(info);
  }
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

/* Adds the new indexes of this table, in its definition before the change, to a build; returns a reason if that is
   impossible. */
const char *ha_evenkeel::plan_build(TABLE *altered, Alter_inplace_info *info, Build *build)
{
  /* From fields of the new definition to the present columns. */
  std::vector<int> columns;
  for (const Field *was : old_fields(info))
    columns.push_back(was ? m_columns[was->field_index] : -1);
  const bool is_first= build->tables.empty();
  build->tables.push_back({m_name, {}});
  for (uint i= 0; i < info->index_add_count; i++)
  {
    const KEY &added= info->key_info_buffer[info->index_add_buffer[i]];
    for (uint j= 0; j < altered->s->keys; j++)
    {
      const KEY *key= &altered->key_info[j];
      if (!equal(key->name, added.name))
        continue;
      for (uint k= 0; k < key->user_defined_key_parts; k++)
        if (columns[key->key_part[k].fieldnr - 1] < 0)
          return altered->field[key->key_part[k].fieldnr - 1]->stored_in_db()
                   ? "an index of a column of the same ALTER" : "an index of a virtual column";
      std::vector<ek_part> parts;
      if (const char *why= key_parts(key, columns, &parts))
        return why;
      build->tables.back().parts.push_back(parts);
      if (!is_first)
        continue;
      build->names.emplace_back(key->name.str, key->name.length);
      build->unique.push_back(is_unique(key));
    }
  }
  return nullptr;
}

/* -- the three phases -- */

/* Reads the row with this clustered key into the record of the new definition. */
bool ha_evenkeel::read_into(TABLE *altered, Alter_inplace_info *info, const std::string &key)
{
  ek_error error;
  const Owned_txn txn(ek_begin(evenkeel_db, EK_READ_COMMITTED, 0, &error));
  if (!txn)
    return false;
  table->use_all_columns();
  const bool found= ek_get(txn.get(), m_table, ek_text(key), EK_LOCK_NONE, m_row, &error) == 1 &&
                    !fill(table->record[0], m_row, false);
  if (found)
  {
    /* The server marks all columns of the new definition as used. */
    const std::vector<const Field *> old= old_fields(info);
    for (uint i= 0; altered->field[i]; i++)
      if (old[i] && old[i]->stored_in_db())
      {
        if (old[i]->is_null())
          altered->field[i]->set_null();
        else
        {
          altered->field[i]->set_notnull();
          altered->field[i]->store_field(const_cast<Field *>(old[i]));
        }
      }
  }
  return found;
}

/* Tells the client why a build failed. */
void ha_evenkeel::report_build(TABLE *altered, Alter_inplace_info *info, Build *build)
{
  const ek_error &error= build->error;
  if (thd_kill_level(ha_thd()))
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
  else if (error.kind == EK_DUPLICATE)
  {
    const std::string index= without_mark(error.index);
    std::string in, key;
    if (build->duplicate(&in, &key))
      for (ha_evenkeel *part : changed_together(info))
        for (uint i= 0; part->m_name == in && i < altered->s->keys; i++)
          if (index == altered->key_info[i].name.str && part->read_into(altered, info, key))
          {
            print_keydup_error(altered, &altered->key_info[i], MYF(0));
            return;
          }
    my_printf_error(ER_DUP_ENTRY, "Duplicate entry for key '%-.192s'", MYF(0), index.c_str());
  }
  else
    print_error(handler_error(ha_thd(), error), MYF(0));
}

/* From now on writers report where they write NULL. True, with the error raised, if a transaction that was prepared
   by XA and belongs to no connection any more uses the table: its writes were not watched. */
bool ha_evenkeel::watch_nulls(TABLE *altered, Alter_inplace_info *info)
{
  const std::vector<const Field *> old= old_fields(info);
  std::vector<uint> fields;
  std::vector<std::string> names;
  for (uint i= 0; altered->field[i]; i++)
    if (loses_null(altered->field[i], old[i]))
    {
      fields.push_back(old[i]->field_index);
      names.push_back(altered->field[i]->field_name.str);
    }
  const ek_schema_wait wait= schema_wait(ha_thd());
  ek_error error;
  if (ek_wait_unused(evenkeel_db, name(), &wait, &error))
  {
    print_error(handler_error(ha_thd(), error), MYF(0));
    return true;
  }
  static_cast<Alter_context *>(info->handler_ctx)->nulls.reset(new Null_watch(m_name, fields, names));
  return false;
}

/* What the server says where it copies such a row, and InnoDB where it does not copy. */
static void say_null(const Null_watch &watch, const Null_place &place)
{
  my_error(WARN_DATA_TRUNCATED, MYF(0), watch.names[place.column].c_str(), (ulong) place.row);
}

/* True, with the error raised, if a writer has shown NULL; `row` counts the rows that were read before. */
static bool writer_showed_null(const Null_watch &watch, uint64_t row)
{
  const size_t seen= watch.seen;
  if (seen != Null_watch::NOTHING)
    say_null(watch, {seen, row});
  return seen != Null_watch::NOTHING;
}

/* True, with the error raised, if a row has NULL in a column that becomes NOT NULL. */
bool ha_evenkeel::has_nulls(const Null_watch &watch)
{
  std::vector<uint32_t> columns;
  for (uint field : watch.fields)
    columns.push_back((uint32_t) m_columns[field]);
  thd_progress_init(ha_thd(), 1);
  ek_error error;
  Null_place place;
  const Nulls found= find_nulls(ha_thd(), m_name, columns, &place, &error);
  thd_progress_end(ha_thd());
  switch (found)
  {
  case NO_NULL: return writer_showed_null(watch, place.row);
  case HAS_NULL: say_null(watch, place); return true;
  case NULLS_KILLED: my_error(ER_QUERY_INTERRUPTED, MYF(0)); return true;
  case NULLS_UNKNOWN: print_error(handler_error(ha_thd(), error), MYF(0)); return true;
  }
  return true;
}

bool ha_evenkeel::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Alter_context *context= new Alter_context(this);
  info->handler_ctx= context;
  if (info->handler_flags & ALTER_COLUMN_NOT_NULLABLE && watch_nulls(altered, info))
    return true;
  if (info->handler_flags & ALTER_ADD_FOREIGN_KEY)
    if (int failed= context->foreign.collect_added(ha_thd(), m_name, altered, info->alter_info))
    {
      raise_not_added(failed, context->foreign.refused());
      return true;
    }
  if (!(info->handler_flags & BUILD))
    return false;
  THD *thd= ha_thd();
  const std::vector<ha_evenkeel *> so_far= changed_together(info);
  if (so_far.size() > 1)
    context= static_cast<Alter_context *>(info->group_commit_ctx[0]);
  else
    context->build.reset(new Build(thd));
  Build *build= context->build.get();
  if (const char *why= plan_build(altered, info, build))
  {
    my_printf_error(ER_ALTER_OPERATION_NOT_SUPPORTED, "EVENKEEL does not support %s", MYF(0), why);
    return true;
  }
  if (table->part_info && so_far.size() < table->part_info->get_tot_partitions())
    return false;
  thd_progress_init(thd, 1);
  build->start(thd);
  if (!build->wait(thd, EK_BUILD_SCANNING))
    return false;
  thd_progress_end(thd);
  report_build(altered, info, build);
  return true;
}

bool ha_evenkeel::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Alter_context *context= static_cast<Alter_context *>(info->handler_ctx);
  if (context && context->build)
  {
    const bool failed= context->build->wait(ha_thd(), EK_BUILD_DONE);
    thd_progress_end(ha_thd());
    if (failed)
    {
      report_build(altered, info, context->build.get());
      return true;
    }
  }
  if (context && context->nulls && has_nulls(*context->nulls))
    return true;
  if (!context || context->foreign.added().empty())
    return false;
  const int failed= prove_keys(ha_thd(), m_name, context->foreign);
  context->has_proved= !failed;
  if (failed)
    raise_not_added(failed, context->foreign.refused());
  return failed != 0;
}

/* A change of a table in the engine's catalog, with the names that it points to. */
struct ha_evenkeel::Change
{
  explicit Change(const std::string &of) : table(of) {}

  const std::string table;
  std::vector<ek_bytes> drop_indexes, drop_columns;
  std::vector<ek_rename> rename_indexes, rename_columns;
  std::vector<ek_widen> widen;
  std::vector<ek_new_column> add;
  std::vector<ek_bytes> drop_foreign_keys, add_foreign_keys;
  std::list<std::string> names;

  ek_bytes keep(const std::string &name)
  {
    names.push_back(name);
    return ek_text(names.back());
  }
  ek_change get() const
  {
    return {ek_text(table),
            drop_indexes.data(), drop_indexes.size(), rename_indexes.data(), rename_indexes.size(),
            drop_columns.data(), drop_columns.size(), rename_columns.data(), rename_columns.size(),
            widen.data(), widen.size(), add.data(), add.size(),
            drop_foreign_keys.data(), drop_foreign_keys.size(),
            add_foreign_keys.data(), add_foreign_keys.size()};
  }
  bool is_empty() const
  {
    return drop_indexes.empty() && rename_indexes.empty() && drop_columns.empty() &&
           rename_columns.empty() && widen.empty() && add.empty() && drop_foreign_keys.empty() &&
           add_foreign_keys.empty();
  }
};

void ha_evenkeel::plan_indexes(Alter_inplace_info *info, const Build *build, Change *change)
{
  const KEY *primary= primary_of(table);
  for (uint i= 0; i < info->index_drop_count; i++)
    if (info->index_drop_buffer[i] != primary)
      change->drop_indexes.push_back(text(info->index_drop_buffer[i]->name));
  for (const Alter_inplace_info::Rename_key_pair &pair : info->rename_keys)
    if (!primary || !equal(pair.old_key->name, primary->name))
      change->rename_indexes.push_back({text(pair.old_key->name), text(pair.new_key->name)});
  if (build)
    for (const std::string &name : build->names)
      change->rename_indexes.push_back({change->keep(PROVISIONAL + name), ek_text(name)});
}

void ha_evenkeel::plan_columns(TABLE *altered, Alter_inplace_info *info, Change *change)
{
  const std::vector<const Field *> old= old_fields(info);
  for (Field **f= table->field; *f; f++)
  {
    const size_t now= std::find(old.begin(), old.end(), *f) - old.begin();
    if (is_kept(table, *f) && (now == old.size() || !is_kept(altered, altered->field[now])))
      change->drop_columns.push_back(text((*f)->field_name));
  }
  for (uint i= 0; altered->field[i]; i++)
  {
    const Field *field= altered->field[i], *was= old[i];
    if (!field->stored_in_db())
      continue;
    const Column now= Column::of(field);
    if (!was)
    {
      ek_value value;
      default_of(field, &value);
      change->add.push_back({{text(field->field_name), now.type_code, EK_NULLABLE, now.a, now.b},
                             value});
      continue;
    }
    if (!equal(was->field_name, field->field_name))
      change->rename_columns.push_back({text(was->field_name), text(field->field_name)});
    if (now.a > Column::of(was).a)
      change->widen.push_back({text(field->field_name), now.a});
  }
}

/* The engine's form of the version of a server's definition. */
static uint64_t mark_of(const LEX_CUSTRING &version)
{
  uint64_t halves[2]= {0, 0};
  memcpy(halves, version.str, MY_MIN(version.length, sizeof halves));
  const uint64_t mark= halves[0] ^ halves[1];
  return mark ? mark : 1;
}

/* The server's DDL log has ended with the statement: no crash makes it ask for the mark any more. */
static void forget_mark(void *of)
{
  const std::unique_ptr<std::string> marked(static_cast<std::string *>(of));
  ek_error error;
  if (ek_forget_mark(evenkeel_db, ek_text(*marked), &error) && error.code != CODE_TableMissing)
    report("mark of an ALTER TABLE", error);
}

/* Changes tables as one; false if that succeeded or there is nothing to change. */
bool ha_evenkeel::apply(const std::list<Change> &changes, Alter_inplace_info *info, bool commit)
{
  std::vector<ek_change> what;
  for (const Change &change : changes)
    if (!change.is_empty())
      what.push_back(change.get());
  if (what.empty())
    return false;
  const bool marks= commit && table->part_info;
  const uint64_t mark= marks ? mark_of(info->create_info->tabledef_version) : 0;
  /* The engine marks the first table that it is given. The object that forgets the mark must exist before the change
     is made. */
  std::unique_ptr<std::string> marked;
  if (marks)
    marked.reset(new std::string((const char *) what[0].table.ptr, what[0].table.len));
  ek_error error;
  /* A rollback has no second chance. */
  const ek_schema_wait wait= schema_wait(ha_thd());
  if (ek_alter_tables(evenkeel_db, what.data(), what.size(), mark, commit ? &wait : nullptr, &error))
  {
    if (commit && raise_needed_index(error, m_name, info))
      return true;
    report(commit ? "ALTER TABLE" : "ALTER TABLE, taken back", error);
    if (commit)
      print_error(handler_error(ha_thd(), error), MYF(0));
    return commit;
  }
  if (marks)
  {
    info->inplace_alter_table_committed= entry<forget_mark>;
    info->inplace_alter_table_committed_argument= marked.release();
  }
  return false;
}

/* Transactions may have inserted greater numbers since the statement was examined; none can insert one now. */
void ha_evenkeel::raise_numbers(ulonglong next)
{
  ek_error error;
  if (next > ek_next_number(evenkeel_db, name()) &&
      ek_restart_numbers(evenkeel_db, name(), next, &error))
  {
    report("ALTER TABLE ... AUTO_INCREMENT", error);
    warn_of_error(ha_thd(), error);
  }
}

bool ha_evenkeel::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  Alter_context *context= static_cast<Alter_context *>(info->handler_ctx);
  Build *build= context ? context->build.get() : nullptr;
  const std::vector<ha_evenkeel *> parts= changed_together(info);
  const std::vector<Alter_context *> contexts= contexts_of(info);
  for (const Alter_context *of : contexts)
    if (commit && of->nulls && writer_showed_null(*of->nulls, 1))
      return true;
  std::list<Change> changes;
  if (commit)
    for (ha_evenkeel *part : parts)
    {
      changes.emplace_back(part->m_name);
      part->plan_indexes(info, build, &changes.back());
      part->plan_columns(altered, info, &changes.back());
      for (const std::string &key : dropped_keys(part->m_name, info->alter_info))
        changes.back().drop_foreign_keys.push_back(changes.back().keep(key));
      if (part == this && context && context->has_proved)
        for (const ek_foreign &key : context->foreign.added())
          changes.back().add_foreign_keys.push_back(key.name);
    }
  else if (build && build->stop())
    for (const Build::Of_table &of : build->tables)
    {
      changes.emplace_back(of.name);
      for (const std::string &name : build->names)
        changes.back().drop_indexes.push_back(changes.back().keep(PROVISIONAL + name));
    }
  if (!commit && context && context->has_proved)
    forget_keys(m_name);
  if (apply(changes, info, commit))
    return true;
  if (commit && (info->create_info->used_fields & HA_CREATE_USED_AUTO))
    for (ha_evenkeel *part : parts)
      part->raise_numbers(info->create_info->auto_increment_value);
  /* Older snapshots may see NULL in old row versions. */
  for (const Alter_context *of : contexts)
    if (ek_error error; commit && of->nulls &&
        ek_readable_from(evenkeel_db, of->owner->name(), 1, &error))
    {
      report("ALTER TABLE ... NOT NULL", error);
      warn_of_error(ha_thd(), error);
    }
  /* The server need not call commit for the other partitions; it calls rollback for each. */
  if (commit)
    info->group_commit_ctx= nullptr;
  if (context)
  {
    context->build.reset();
    context->nulls.reset();
  }
  return false;
}

/* -- what the server asks -- */

ulonglong ha_evenkeel::table_version() const
{
  ek_error error;
  ek_table_info info;
  return ek_table_figures(evenkeel_db, name(), &info, &error) ? 0 : info.definition;
}

/* True if a partition of the table has this mark of its last change. */
static bool is_marked(const std::string &table, uint64_t mark)
{
  /* The engine calls back here, so nothing is allocated. */
  struct Wanted
  {
    std::string begin;
    uint64_t mark;
    bool found;
  } wanted= {table + "#P#", mark, false};
  ek_tables(evenkeel_db, &wanted, [](void *to, ek_bytes name) {
    Wanted *wanted= static_cast<Wanted *>(to);
    const size_t len= wanted->begin.size();
    ek_error error;
    ek_table_info info;
    if (name.len > len && !memcmp(name.ptr, wanted->begin.data(), len) &&
        !ek_table_figures(evenkeel_db, name, &info, &error))
      wanted->found|= info.mark == wanted->mark;
  });
  return wanted.found;
}

int evenkeel_check_version(handlerton *, const char *path, const LEX_CUSTRING *version,
                           ulonglong before)
{
  const Database_use use;
  if (!use)
    return 2;
  ek_error error;
  ek_table_info info;
  const std::string name= table_name(path);
  if (ek_table_figures(evenkeel_db, ek_text(name), &info, &error))
    return is_marked(name, mark_of(*version)) ? 0 : 2;
  return info.definition == before ? 1 : 0;
}
