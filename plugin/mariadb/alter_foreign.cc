/* Foreign keys in ALTER TABLE: what is dropped, what keeps a column or an index, and the keys of a table that is
   copied. */
#include "ha_evenkeel.h"
#include "alter.h"
#include "errors.h"
#include "fault_injection.h"
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
        if (!was || my_strcasecmp(system_charset_info, was->field_name.str, (*f)->field_name.str) ||
            was->field_length != (*f)->field_length || was->charset() != (*f)->charset())
          return true;
      }
  }
  return false;
}

/* True if a foreign key that is there and stays, or that is added, may set a column to NULL: `was` and `now` are its
   names before and after the change. */
static bool may_be_set_null(const std::string &table, Alter_info *info, const LEX_CSTRING &was, const LEX_CSTRING &now)
{
  const std::vector<std::string> dropped= dropped_keys(table, info);
  for (const Foreign_key_of &key : foreign_keys_of(table, false))
    if (changes_columns(key.on_delete, key.on_update))
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
         !field->real_maybe_null() && !plant("NullOfCascadeTaken") && may_be_set_null(table, info->alter_info, was->field_name, field->field_name);
}

/* The keys of a table, or those that refer to it, but for those that the ALTER drops. */
static std::vector<Foreign_key_of> keys_left(const std::string &table, bool to_it, Alter_info *info)
{
  std::vector<Foreign_key_of> keys= foreign_keys_of(table, to_it);
  const std::vector<std::string> dropped= dropped_keys(table, info);
  keys.erase(std::remove_if(keys.begin(), keys.end(), [&](const Foreign_key_of &key) {
               return key.child == table && std::find(dropped.begin(), dropped.end(), key.name) != dropped.end();
             }), keys.end());
  return keys;
}

static bool has_column(const std::vector<std::string> &columns, const Field &field)
{
  return std::any_of(columns.begin(), columns.end(), [&](const std::string &column) {
    return !my_strcasecmp(system_charset_info, column.c_str(), field.field_name.str);
  });
}

bool in_foreign_key(const std::string &table, const Field &field, Alter_info *info)
{
  for (const bool to_it : {false, true})
    for (const Foreign_key_of &key : keys_left(table, to_it, info))
      if (has_column(to_it ? key.parent_columns : key.columns, field))
        return true;
  return false;
}

/* True if a text becomes longer, or has another character set of the same bytes: InnoDB would do that in place. */
static bool changes_text(const Field *was, const Create_field *now)
{
  return was->real_type() == MYSQL_TYPE_VARCHAR && now->type_handler()->real_field_type() == MYSQL_TYPE_VARCHAR &&
         now->length >= was->field_length && (now->length > was->field_length || now->charset != was->charset()) &&
         Charset(was->charset()).encoding_allows_reinterpret_as(now->charset);
}

/* True, with InnoDB's error raised: an ALTER changes a text that a foreign key compares. The server refuses it, and
   other changes of such columns, where the table is copied. The names in this error are those of InnoDB's files. */
bool ha_evenkeel::changes_key_text(Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now= fields++)
    for (const bool to_it : {false, true})
      for (const Foreign_key_of &key : keys_left(m_name, to_it, info->alter_info))
      {
        const Field *was= now->field;
        if (!was || was->table != table || !changes_text(was, now) ||
            !has_column(to_it ? key.parent_columns : key.columns, *was))
          continue;
        const std::string name= key.child.substr(0, key.child.rfind('/') + 1) + key.name;
        if (to_it)
          my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), was->field_name.str, name.c_str(), key.child.c_str());
        else
          my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), was->field_name.str, name.c_str());
        return true;
      }
  return false;
}

/* Raises the error of a key that an ALTER in place cannot add: with checks InnoDB's of a copy, which it then makes. */
void ha_evenkeel::raise_not_added(int failed, const std::string &key)
{
  const bool is_taken= failed == HA_ERR_FOUND_DUPP_KEY;
  if (!is_taken && failed != HA_ERR_CANNOT_ADD_FOREIGN)
    print_error(failed, MYF(0));
  else if (checks_foreign_keys(ha_thd()))
  {
    my_error(ER_CANT_CREATE_TABLE, MYF(0), table_share->db.str, table_share->table_name.str, failed);
    const Abort_on_warning_instant_set does_not_abort(ha_thd(), false);
    push_warning_printf(ha_thd(), Sql_condition::WARN_LEVEL_WARN, is_taken ? ER_DUP_KEY : ER_CANNOT_ADD_FOREIGN,
                        ER_THD(ha_thd(), is_taken ? ER_DUP_KEY : ER_CANNOT_ADD_FOREIGN),
                        table_share->table_name.str);
  }
  else if (is_taken)
    my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", key.c_str());
  else
    my_error(ER_CANNOT_ADD_FOREIGN, MYF(0), table_share->table_name.str);
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
  List_iterator_fast<Create_field> fields(info->alter_info->create_list);
  while (const Create_field *now= fields++)
    for (const Foreign_key_of &key : keys)
      for (const std::string &column : key.columns)
        if (now->field && now->field->table == table && column == now->field->field_name.str &&
            (now->flags & NOT_NULL_FLAG) && (key.on_delete == KEY_SET_NULL || key.on_update == KEY_SET_NULL) &&
            !plant("NotNullBeneathSetNull"))
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
  if (int failed= plant("KeysLostInCopy") ? 0 : add_keys(thd, copy, keys.kept(), false, false))
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
