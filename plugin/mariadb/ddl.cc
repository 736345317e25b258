/* Creating, dropping, renaming and emptying tables. */
#include "ha_evenkeel.h"
#include "chunks.h"
#include "ddl.h"
#include "columns.h"
#include "fault_injection.h"
#include "foreign.h"

static int refuse(const char *what)
{
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Table storage engine 'EVENKEEL' does not support "
                  "%s yet", MYF(0), what);
  return HA_WRONG_CREATE_OPTION;
}

/* The server itself checks long unique keys, through an index of their hashes. */
uint8_t is_unique(const KEY *key)
{
  return key->flags & HA_NOSAME && key->algorithm != HA_KEY_ALG_LONG_HASH;
}

bool in_a_key(const TABLE *table, const Field *field)
{
  for (uint i= 0; i < table->s->keys; i++)
    for (uint j= 0; j < table->key_info[i].user_defined_key_parts; j++)
      if (table->key_info[i].key_part[j].fieldnr == field->field_index + 1)
        return true;
  return false;
}

static std::string quoted(const TABLE_SHARE *share)
{
  return std::string("`") + share->db.str + "`.`" + share->table_name.str + "`";
}

/* The engine has the table but the server has no definition of it, because its .frm was lost: the error that InnoDB
   gives. */
static int table_exists(const std::string &name)
{
  my_error(ER_TABLE_EXISTS_ERROR, MYF(0), name.c_str());
  return HA_ERR_TABLE_EXIST;
}

/* All files of the engine are in one directory. A directory of a table's own is ignored, with the warning that the
   server's engines use. */
static void warn_of_directories(THD *thd, const HA_CREATE_INFO *info)
{
  const std::pair<const char *, const char *> options[]= {
      {info->data_file_name, "DATA DIRECTORY"}, {info->index_file_name, "INDEX DIRECTORY"}};
  for (const auto &[named, option] : options)
    if (named)
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED,
                          ER_THD(thd, WARN_OPTION_IGNORED), option);
}

int ha_evenkeel::create(const char *path, TABLE *form, HA_CREATE_INFO *info)
{
  const Database_use use;
  if (!use)
    return not_open();
  const std::string made= table_name(path);
  Foreign_specs foreign;
  if (int failed= foreign.collect(ha_thd(), made, form, info))
    return failed;
  Chunk_options chunks;
  if (!chunks.read(ha_thd(), form, info, !foreign.keys().empty()))
    return HA_WRONG_CREATE_OPTION;
  warn_of_directories(ha_thd(), info);
  std::vector<ek_column> columns;
  const std::vector<int> position= engine_columns(form);
  for (Field **f= form->field; *f; f++)
  {
    Field *field= *f;
    if (position[field->field_index] < 0)
      continue;
    const Column column= Column::of(field);
    /* To the engine, a column that is in no key is nullable: the server checks NOT NULL, and removing it then
       changes nothing that is stored. */
    const uint8_t flags= field->real_maybe_null() || !in_a_key(form, field) ? EK_NULLABLE : 0;
    const ek_bytes name= {(const uint8_t *) field->field_name.str, field->field_name.length};
    columns.push_back({name, column.type_code, flags, column.a, column.b});
  }
  if (columns.empty() && !plant("NoFiller"))
    columns.push_back({ek_text(FILLER), Column::FILLER_CODE, EK_NULLABLE, 0, 0});
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
                         parts[i].size(), is_unique(key)});
  }
  /* A table of CREATE TEMPORARY TABLE, or the copy that an ALTER of one makes. The target of other copying
     statements is needed after a crash, because it replaces a table. */
  const bool is_temporary= (info->options & HA_LEX_CREATE_TMP_TABLE) && !is_copy(made);
  /* A copy gets its keys when its rows are there, except if the server checks keys of its own as rows arrive. */
  const bool waits= is_copy(made) && !server_checks_keys(form->s);
  const std::vector<ek_foreign> none, &keys= waits ? none : foreign.keys();
  ek_error error;
  /* The error is raised at once, because the server's own error says only that the table cannot be created, and
     gives the handler's number. */
  if (ek_create_table(evenkeel_db, ek_text(made), columns.data(), columns.size(), primary.data(),
                      primary.size(), indexes.data(), indexes.size(), keys.data(), keys.size(), chunks.get(),
                      is_temporary, &error))
  {
    /* A key of the table, or one that waits for a table of its name. */
    if (error.code == CODE_ForeignKeyInvalid)
    {
      warn_of_key(ha_thd(), error.text);
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    return error.code == CODE_TableExists && !plant("LostTableUnnamed") ? table_exists(quoted(form->s))
                                                                        : raise_error(ha_thd(), error);
  }
  if (waits)
    keep_keys_of_copy(ha_thd(), made, std::move(foreign));
  int failed= 0;
  if ((info->options & HA_LEX_CREATE_TMP_TABLE) && ek_readable_from(evenkeel_db, ek_text(made), 0, &error))
    failed= raise_error(ha_thd(), error);
  if (!failed)
    failed= begin_numbers(made, info);
  /* The server treats a table that could not be created as one that does not exist. */
  if (failed && ek_drop_table(evenkeel_db, ek_text(made), nullptr, &error))
    report("drop of a table that could not be made", error);
  return failed;
}

int ha_evenkeel::delete_table(const char *path)
{
  return evenkeel_hton->drop_table(evenkeel_hton, path);
}

bool is_copy(const std::string &name)
{
  const size_t slash= name.rfind('/');
  const size_t file= slash == std::string::npos ? 0 : slash + 1;
  return name.compare(file, 10, "#sql-alter") == 0 || name.find("#TMP#", file) != std::string::npos;
}

int ha_evenkeel::rename_table(const char *from, const char *to)
{
  const Database_use use;
  if (!use)
    return not_open();
  ek_error error;
  const std::string old_name= table_name(from), new_name= table_name(to);
  THD *thd= ha_thd();
  const ek_schema_wait wait= schema_wait(thd);
  /* A statement that is already killed takes its renamings back; the kill must not end these. */
  const bool takes_back= thd_kill_level(thd) != THD_IS_NOT_KILLED;
  const std::string replaced= replaced_by(old_name);
  const Renamed_keys keys(old_name, new_name);
  if (ek_rename_table(evenkeel_db, ek_text(old_name), ek_text(new_name), ek_text(replaced), keys.pairs().data(),
                      keys.pairs().size(), takes_back ? nullptr : &wait, &error))
  {
    /* The server's recovery takes back renamings that a crash prevented, without asking for them first. */
    if (error.code == CODE_TableMissing)
      return HA_ERR_NO_SUCH_TABLE;
    return error.code == CODE_TableExists && !plant("LostTableUnnamedInRename") ? table_exists(to)
                                                                                : raise_error(thd, error);
  }
  if (is_copy(old_name) && ek_readable_from(evenkeel_db, ek_text(new_name), 1, &error))
  {
    const int failed= raise_error(thd, error);
    if (ek_rename_table(evenkeel_db, ek_text(new_name), ek_text(old_name), ek_text(std::string()), nullptr, 0,
                        nullptr, &error))
      report("renaming of a table, taken back", error);
    return failed;
  }
  /* The table is renamed: the rest must not fail any more. */
  rename_last_change(old_name, new_name);
  return 0;
}

int ha_evenkeel::truncate()
{
  ek_error error;
  const ek_schema_wait wait= schema_wait(ha_thd());
  if (ek_truncate(evenkeel_db, name(), &wait, &error))
    return fail(error);
  *m_last_change= time(nullptr);
  if (table_share->tmp_table && ek_readable_from(evenkeel_db, name(), 0, &error))
    return fail(error);
  return 0;
}
