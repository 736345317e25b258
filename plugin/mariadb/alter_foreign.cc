/* Foreign keys in ALTER TABLE: what is dropped, what keeps a column or an index, and the keys of a table that is
   copied. */
#include "ha_evenkeel.h"
#include "alter.h"
#include "errors.h"
#include "foreign.h"
#include "index_build.h"
#include <algorithm>

std::vector<std::string> dropped_keys(const std::string &table, Alter_info *info)
{
  std::vector<std::string> dropped;
  if (!(info->flags & ALTER_DROP_FOREIGN_KEY))
    return dropped;
  for (const Foreign_key_of &key : foreign_keys_of(table, false))
  {
    List_iterator_fast<Alter_drop> drops(info->drop_list);
    while (const Alter_drop *drop= drops++)
      if (drop->type == Alter_drop::FOREIGN_KEY &&
          !my_strcasecmp(system_charset_info, drop->name, key.name.c_str()))
      {
        dropped.push_back(key.name);
        break;
      }
  }
  return dropped;
}

/* The keys are proved before the change of the columns, by the columns' names of before. */
bool adds_key_of_new_column(const TABLE *altered, const std::vector<const Field *> &old, Alter_info *info)
{
  List_iterator_fast<Key> keys(info->key_list);
  while (Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY || key->old)
      continue;
    List_iterator_fast<Key_part_spec> parts(key->columns);
    while (const Key_part_spec *part= parts++)
      for (Field **f= altered->field; *f; f++)
      {
        if (my_strcasecmp(system_charset_info, part->field_name.str, (*f)->field_name.str))
          continue;
        const Field *was= old[(*f)->field_index];
        if (!was || my_strcasecmp(system_charset_info, was->field_name.str, (*f)->field_name.str))
          return true;
      }
  }
  return false;
}

/* True if a foreign key that is there and stays, or that is added, may set a column to NULL: `was` and `now` are its
   names before and after the change. */
static bool may_be_set_null(const std::string &table, Alter_info *info, const LEX_CSTRING &was, const LEX_CSTRING &now)
{
  /* The engine's actions; the server's have other numbers. */
  const uint8_t cascade= 2, set_null= 3;
  const std::vector<std::string> dropped= dropped_keys(table, info);
  for (const Foreign_key_of &key : foreign_keys_of(table, false))
    if (key.on_update >= cascade || key.on_delete == set_null)
      if (std::find(dropped.begin(), dropped.end(), key.name) == dropped.end())
        for (const std::string &column : key.columns)
          if (!my_strcasecmp(system_charset_info, column.c_str(), was.str))
            return true;
  List_iterator_fast<Key> keys(info->key_list);
  while (Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY || key->old)
      continue;
    const Foreign_key *added= static_cast<const Foreign_key *>(key);
    if (added->update_opt != FK_OPTION_CASCADE && added->update_opt != FK_OPTION_SET_NULL &&
        added->delete_opt != FK_OPTION_SET_NULL)
      continue;
    List_iterator_fast<Key_part_spec> parts(key->columns);
    while (const Key_part_spec *part= parts++)
      if (!my_strcasecmp(system_charset_info, part->field_name.str, now.str))
        return true;
  }
  return false;
}

/* To the engine a column is nullable if it took NULL, or was in no key, when its table was made. The engine writes the
   NULL of a cascade without asking the server. So such a column becomes NOT NULL by copying: to the engine, too, the
   copy's column takes no NULL. */
bool takes_null_of_cascade(const std::string &table, Alter_inplace_info *info, const Field *field, const Field *was,
                           bool is_nullable)
{
  return info->handler_flags & (ALTER_COLUMN_NOT_NULLABLE | ALTER_ADD_FOREIGN_KEY) && is_nullable &&
         !field->real_maybe_null() && may_be_set_null(table, info->alter_info, was->field_name, field->field_name);
}

/* True if the new definition has no column in place of this one. */
static bool is_dropped(const Field *field, Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now= fields++)
    if (now->field == field)
      return false;
  return true;
}

/* True, with InnoDB's error raised: a column becomes NOT NULL that a foreign key sets to NULL. */
static bool loses_null_of_key(const TABLE *table, const std::vector<Foreign_key_of> &keys, Alter_inplace_info *info)
{
  const uint8_t set_null= 3;
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now= fields++)
    for (const Foreign_key_of &key : keys)
      for (const std::string &column : key.columns)
        if (now->field && now->field->table == table && column == now->field->field_name.str &&
            (now->flags & NOT_NULL_FLAG) && (key.on_delete == set_null || key.on_update == set_null))
        {
          my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), column.c_str(), key.name.c_str());
          return true;
        }
  return false;
}

/* True, with InnoDB's error raised: a column is dropped that a foreign key has, or may be NULL no longer though one
   sets it to NULL. */
bool ha_evenkeel::loses_key_columns(Alter_inplace_info *info)
{
  if (info->handler_flags & ALTER_COLUMN_NOT_NULLABLE && loses_null_of_key(table, foreign_keys_of(m_name, false), info))
    return true;
  if (!(info->handler_flags & ALTER_DROP_STORED_COLUMN))
    return false;
  const std::vector<std::string> dropped= dropped_keys(m_name, info->alter_info);
  for (const bool to_it : {false, true})
    for (const Foreign_key_of &key : foreign_keys_of(m_name, to_it))
    {
      const bool is_own= key.child == m_name;
      if (is_own && std::find(dropped.begin(), dropped.end(), key.name) != dropped.end())
        continue;
      for (const std::string &column : to_it ? key.parent_columns : key.columns)
        for (Field **f= table->field; *f; f++)
          if (column == (*f)->field_name.str && is_dropped(*f, info))
          {
            /* The index of the column goes with it, and InnoDB tells of the index first. */
            for (uint i= 0; i < info->index_drop_count; i++)
              if (info->index_drop_buffer[i]->key_part[0].field == *f)
              {
                my_error(ER_DROP_INDEX_FK, MYF(0), info->index_drop_buffer[i]->name.str);
                return true;
              }
            std::string db, child;
            server_names(key.child, &db, &child);
            const std::string in= "`" + db + "`.`" + child + "`";
            if (to_it)
              my_error(ER_FK_COLUMN_CANNOT_DROP_CHILD, MYF(0), column.c_str(), key.name.c_str(), in.c_str());
            else
              my_error(ER_FK_COLUMN_CANNOT_DROP, MYF(0), column.c_str(), key.name.c_str());
            return true;
          }
    }
  return false;
}

bool raise_needed_index(const ek_error &error, const std::string &table, Alter_inplace_info *info)
{
  const char *tab= strchr(error.index, '\t');
  if (error.code != CODE_ForeignKeyNeeds || !tab || !info->index_drop_count)
    return false;
  const std::string name(error.index, tab), child= tab + 1;
  const KEY *needed= info->index_drop_buffer[0];
  for (const Foreign_key_of &key : foreign_keys_of(child, false))
    for (uint i= 0; key.name == name && i < info->index_drop_count; i++)
    {
      const KEY *index= info->index_drop_buffer[i];
      const std::vector<std::string> &columns= child == table ? key.columns : key.parent_columns;
      const char *first= index->key_part[0].field->field_name.str;
      if (std::find(columns.begin(), columns.end(), first) != columns.end())
        needed= index;
    }
  my_error(ER_DROP_INDEX_FK, MYF(0), needed->name.str);
  return true;
}

/* The keys of the copy that the thread's statement makes. */
static thread_local struct
{
  query_id_t query= 0;
  std::string copy;
  Foreign_specs keys;
} kept;

void keep_keys_of_copy(THD *thd, const std::string &copy, Foreign_specs &&keys)
{
  kept.query= thd->query_id;
  kept.copy= copy;
  kept.keys= std::move(keys);
}

/* 0, or the error of the statement for the server to print. */
static int add_keys(THD *thd, const std::string &table, const std::vector<ek_foreign> &keys, bool validates,
                    bool are_provisional)
{
  if (keys.empty())
    return 0;
  Build build(thd);
  build.tables.push_back({table, {}});
  for (const ek_foreign &key : keys)
    build.names.emplace_back((const char *) key.name.ptr, key.name.len);
  build.foreign.reset(new Build::Foreign_keys{&keys, validates, are_provisional});
  build.start(thd);
  if (!build.wait(thd, EK_BUILD_DONE))
    return 0;
  if (thd_kill_level(thd))
    return HA_ERR_ABORTED_BY_USER;
  if (build.error.code == CODE_ForeignKeyInvalid || build.error.code == CODE_ParentRowMissing)
    warn_of_key(thd, build.error.text);
  return handler_error(thd, build.error);
}

int prove_keys(THD *thd, const std::string &table, const Foreign_specs &keys)
{
  return add_keys(thd, table, keys.added(), checks_foreign_keys(thd), true);
}

void forget_keys(const std::string &table)
{
  ek_error error;
  if (ek_forget_foreign_keys(evenkeel_db, ek_text(table), &error) && error.code != CODE_TableMissing)
    report("foreign keys of an ALTER TABLE that is taken back", error);
}

int add_keys_of_copy(THD *thd, const std::string &copy)
{
  if (kept.query != thd->query_id || kept.copy != copy)
    return 0;
  const Foreign_specs keys= std::move(kept.keys);
  kept.query= 0;
  if (int failed= add_keys(thd, copy, keys.kept(), false, false))
    return failed;
  if (int failed= add_keys(thd, copy, keys.added(), checks_foreign_keys(thd), false))
    return failed;
  /* Keys of other tables to the one that the copy replaces. */
  ek_error error;
  if (!keys.replaced().empty() && ek_is_referenced(evenkeel_db, ek_text(keys.replaced())) > 0 &&
      ek_check_replacement(evenkeel_db, ek_text(keys.replaced()), ek_text(copy), &error))
    return handler_error(thd, error);
  return 0;
}
