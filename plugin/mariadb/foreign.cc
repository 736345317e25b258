/* Foreign keys: the clauses of CREATE TABLE as the engine's, and what the server asks about keys. The engine keeps and
   enforces them; the server's definition of a table has nothing of them. Texts and numbers of errors, names of keys
   without one, and the order in which keys are listed are InnoDB's. */
#include "foreign.h"
#include "columns.h"
#include "ddl.h"
#include "entry.h"
#include "errors.h"
#include "fault_injection.h"
#include "ha_evenkeel.h"
#include <sql_show.h>
#include <sql_table.h>
#include <algorithm>
#include <memory>

static std::string string_of(const ek_bytes &b) { return std::string((const char *) b.ptr, b.len); }
static std::string string_of(const LEX_CSTRING &s) { return std::string(s.str, s.length); }

/* The engine's names are file names. In the name of a partition only the table's part is encoded as a file name. */
void server_names(const std::string &name, std::string *schema, std::string *table)
{
  char to[NAME_LEN + 1];
  const size_t slash= name.rfind('/');
  const std::string part= slash == std::string::npos ? std::string() : name.substr(0, slash);
  const size_t begin= part.rfind('/');
  const std::string db= begin == std::string::npos ? part : part.substr(begin + 1);
  schema->assign(to, filename_to_tablename(db.c_str(), to, sizeof to, true));
  const std::string rest= slash == std::string::npos ? name : name.substr(slash + 1);
  const std::string whole= rest.substr(0, rest.find("#P#"));
  table->assign(to, filename_to_tablename(whole.c_str(), to, sizeof to, true));
  table->append(rest, whole.length(), std::string::npos);
}

bool checks_foreign_keys(THD *thd)
{
  return !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) || plant("ChecksOffForgotten");
}

static std::string file_of(const std::string &name)
{
  const size_t slash= name.rfind('/');
  return slash == std::string::npos ? name : name.substr(slash + 1);
}

static std::string directory_of(const std::string &name)
{
  const size_t slash= name.rfind('/');
  return slash == std::string::npos ? std::string() : name.substr(0, slash);
}

static void add_key(void *to, const ek_foreign_key *key)
{
  Foreign_key_of made= {string_of(key->name), string_of(key->child), string_of(key->parent),
                        string_of(key->parent_index), {}, {},
                        std::vector<uint8_t>(key->nullable, key->nullable + key->columns_len),
                        key->on_delete, key->on_update, key->is_awaiting != 0};
  for (size_t i= 0; i < key->columns_len; i++)
  {
    made.columns.push_back(string_of(key->columns[i]));
    made.parent_columns.push_back(string_of(key->parent_columns[i]));
  }
  static_cast<std::vector<Foreign_key_of> *>(to)->push_back(std::move(made));
}

std::vector<Foreign_key_of> foreign_keys_of(const std::string &table, bool to_it)
{
  std::vector<Foreign_key_of> keys;
  ek_error error;
  calling_back([&] { ek_foreign_keys(evenkeel_db, ek_text(table), to_it, &keys, callback<add_key>, &error); });
  std::sort(keys.begin(), keys.end(), [](const Foreign_key_of &a, const Foreign_key_of &b) {
    return std::make_pair(directory_of(a.child), a.name) < std::make_pair(directory_of(b.child), b.name);
  });
  return keys;
}

/* A table of a statement that is under way. */
static bool is_unfinished(const std::string &name) { return file_of(name).compare(0, 4, "#sql") == 0; }

std::string replaced_by(const std::string &copy)
{
  static const std::string of_copy= "#sql-alter-", of_old= "#sql-backup-";
  const std::string file= file_of(copy);
  if (file.compare(0, of_copy.size(), of_copy) || plant("KeysLostInRename"))
    return std::string();
  return copy.substr(0, copy.size() - file.size()) + of_old + file.substr(of_copy.size());
}

bool drops_children_too(THD *thd, const std::string &table)
{
  /* The other one is CREATE OR REPLACE DATABASE. */
  const int command= thd_sql_command(thd);
  if (command != SQLCOM_DROP_DB && command != SQLCOM_CREATE_DB)
    return false;
  if (plant("ChildElsewhereLeft"))
    return true;
  for (const Foreign_key_of &key : foreign_keys_of(table, true))
    if (directory_of(key.child) != directory_of(table))
      return false;
  return true;
}

/* -- keys that a statement makes -- */

void warn_of_key(THD *thd, const char *why)
{
  /* In strict mode a warning of ALTER TABLE would be its error. */
  const Abort_on_warning_instant_set does_not_abort(thd, false);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, "EVENKEEL: %s", why);
}

int Foreign_specs::refuse(THD *thd, const std::string &key, const std::string &why)
{
  warn_of_key(thd, ("the foreign key " + key + " is not possible: " + why).c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

ek_bytes Foreign_specs::keep(const std::string &text)
{
  m_texts.push_back(text);
  return ek_text(m_texts.back());
}

/* The engine's name of a table. */
static std::string name_in_engine(LEX_CSTRING db, LEX_CSTRING table)
{
  char path[FN_REFLEN + 1], db_name[NAME_LEN + 1], name[NAME_LEN + 1];
  strmake_buf(db_name, db.str);
  strmake_buf(name, table.str);
  if (lower_case_table_names)
  {
    my_casedn_str(system_charset_info, db_name);
    my_casedn_str(system_charset_info, name);
  }
  build_table_filename(path, sizeof path - 1, db_name, name, "", 0);
  return table_name(path);
}

/* The server's definition of a table, read from its file. */
class Definition_of
{
public:
  Definition_of(THD *thd, const std::string &name)
  {
    server_names(name, &m_db, &m_table);
    m_path= "./" + name;
    init_tmp_table_share(thd, &m_share, m_db.c_str(), 0, m_table.c_str(), m_path.c_str());
    m_is_open= open_table_def(thd, &m_share, GTS_TABLE) == OPEN_FRM_OK;
  }
  ~Definition_of() { free_table_share(&m_share); }
  Definition_of(const Definition_of &)= delete;
  const Field *field(const std::string &name) const
  {
    for (Field **f= m_is_open ? m_share.field : nullptr; f && *f; f++)
      if (!my_strcasecmp(system_charset_info, (*f)->field_name.str, name.c_str()))
        return *f;
    return nullptr;
  }
  bool is_open() const { return m_is_open; }
  bool is_versioned() const { return m_is_open && m_share.versioned; }

private:
  std::string m_db, m_table, m_path;
  TABLE_SHARE m_share;
  bool m_is_open;
};

static bool is_text(const Field *field)
{
  const enum_field_types type= field->real_type();
  return field->has_charset() && (type == MYSQL_TYPE_STRING || type == MYSQL_TYPE_VARCHAR ||
                                  type == MYSQL_TYPE_VAR_STRING);
}

/* True if each value of one field is a value of the other, stored in the same bytes. The lengths of strings may
   differ. */
static bool same_values(const Field *a, const Field *b)
{
  if (is_text(a) && is_text(b))
    return a->charset() == b->charset();
  if (a->type_handler() != b->type_handler() || a->pack_length() != b->pack_length() ||
      ((a->flags ^ b->flags) & UNSIGNED_FLAG) || a->decimals() != b->decimals())
    return a->real_type() == MYSQL_TYPE_VARCHAR && b->real_type() == MYSQL_TYPE_VARCHAR &&
           a->charset() == b->charset();
  const enum_field_types type= a->real_type();
  if (type == MYSQL_TYPE_ENUM || type == MYSQL_TYPE_SET)
    return static_cast<const Field_enum *>(a)->typelib->count == static_cast<const Field_enum *>(b)->typelib->count;
  return type != MYSQL_TYPE_NEWDECIMAL || a->field_length == b->field_length;
}

/* A field that belongs to no open table cannot say its own type in SQL. */
static std::string type_of(const Field *field)
{
  const Name type= field->type_handler()->name();
  std::string text(type.ptr(), type.length());
  if (is_text(field))
    return text + "(" + std::to_string(field->char_length()) + ") collate " + field->charset()->coll_name.str;
  if (field->real_type() == MYSQL_TYPE_NEWDECIMAL)
    text+= "(" + std::to_string(static_cast<const Field_new_decimal *>(field)->precision) + "," +
           std::to_string(field->decimals()) + ")";
  return text;
}

static const Field *field_of(const TABLE *table, const LEX_CSTRING &name)
{
  for (Field **f= table->field; *f; f++)
    if (!my_strcasecmp(system_charset_info, (*f)->field_name.str, name.str))
      return *f;
  return nullptr;
}

/* The number of an action in the engine, or -1. */
static int action_of(enum_fk_option option)
{
  switch (option)
  {
  case FK_OPTION_UNDEF:
  case FK_OPTION_RESTRICT: return KEY_RESTRICT;
  case FK_OPTION_NO_ACTION: return KEY_NO_ACTION;
  case FK_OPTION_CASCADE: return plant("CascadeTakenAsSetNull") ? KEY_SET_NULL : KEY_CASCADE;
  case FK_OPTION_SET_NULL: return plant("SetNullTakenAsCascade") ? KEY_CASCADE : KEY_SET_NULL;
  default: return -1;
  }
}

/* True if the engine stores the values of a column that is computed from this one. */
static bool is_base_of_stored(TABLE *table, const Field *field)
{
  const std::vector<int> stored= engine_columns(table);
  for (Field **f= table->field; *f; f++)
  {
    if (!(*f)->vcol_info || stored[(*f)->field_index] < 0)
      continue;
    MY_BITMAP *const before= table->read_set;
    bitmap_clear_all(&table->tmp_set);
    table->read_set= &table->tmp_set;
    (*f)->vcol_info->expr->walk(&Item::register_field_in_read_map, 1, table);
    table->read_set= before;
    if (bitmap_is_set(&table->tmp_set, field->field_index))
      return true;
  }
  return false;
}

/* Cascades change rows below the server, which computes the columns that depend on others and keeps the history of
   rows: the reason why one cannot change a column, or null. */
static const char *not_changed_below(const TABLE *form, const Field *field, int on_delete, int on_update)
{
  if (!cascades(on_delete, on_update) || plant("ComputedChangedBelow"))
    return nullptr;
  if (form->versioned())
    return "is in a system-versioned table, which takes no CASCADE and no SET NULL: its history would lack the change";
  if (form->s->period.name)
    return "is in a table with a period, which takes no CASCADE and no SET NULL";
  const bool changes= changes_columns(on_delete, on_update);
  if (changes && field->vcol_info)
    return "is generated, and CASCADE or SET NULL would change it";
  if (changes && is_base_of_stored(const_cast<TABLE *>(form), field))
    return "is one from which a stored or indexed column is computed, and CASCADE or SET NULL would change it";
  return nullptr;
}

/* The highest number of a key that InnoDB or this engine has named for a table. */
static uint highest_number(const std::string &table, const std::string &of)
{
  const std::string begin= of + "_ibfk_";
  ulong highest= 0;
  for (const Foreign_key_of &key : foreign_keys_of(table, false))
    if (!key.name.compare(0, begin.size(), begin))
      highest= MY_MAX(highest, strtoul(key.name.c_str() + begin.size(), nullptr, 10));
  return (uint) highest;
}

static void add_name(void *to, ek_bytes name)
{
  static_cast<std::vector<std::string> *>(to)->push_back(string_of(name));
}

Renamed_keys::Renamed_keys(const std::string &from, const std::string &to)
{
  if (is_unfinished(from) || is_unfinished(to))
    return;
  std::string db, before, now;
  server_names(from, &db, &before);
  server_names(to, &db, &now);
  const std::string begin= before + "_ibfk_";
  if (before == now || plant("NamesKeptInRename"))
    return;
  for (const Foreign_key_of &key : foreign_keys_of(from, false))
    if (!key.name.compare(0, begin.size(), begin) &&
        key.name.find_first_not_of("0123456789", begin.size()) == std::string::npos)
    {
      m_names.push_back(key.name);
      const ek_bytes old_name= ek_text(m_names.back());
      m_names.push_back(now + key.name.substr(before.size()));
      m_pairs.push_back({old_name, ek_text(m_names.back())});
    }
}

/* True if another table of the database has a key of this name. */
static bool name_is_taken(const std::string &name, const std::string &made, const std::string &replaces)
{
  std::vector<std::string> tables;
  calling_back([&] { ek_tables(evenkeel_db, &tables, callback<add_name>); });
  for (const std::string &table : tables)
    if (directory_of(table) == directory_of(made) && table != replaces && !is_unfinished(table))
      for (const Foreign_key_of &key : foreign_keys_of(table, false))
        if (!my_strcasecmp(system_charset_info, key.name.c_str(), name.c_str()))
          return true;
  return false;
}

/* The server deletes such a row by an update of its end, which leaves the other columns, and with them the key. */
static const char *const versioned_parent= "its parent is system-versioned, where deleted rows would count";

/* The name of a key of another table that refers to this one, or waits for it; empty without one. */
static std::string key_to(const std::string &made, const std::string &replaced)
{
  std::vector<std::string> tables;
  calling_back([&] { ek_tables(evenkeel_db, &tables, callback<add_name>); });
  for (const std::string &table : tables)
    if (table != made && table != replaced)
      for (const Foreign_key_of &key : foreign_keys_of(table, false))
        if (key.parent == made || key.parent == replaced)
          return key.name;
  return std::string();
}

int Foreign_specs::add(THD *thd, const Foreign_key *key, const TABLE *form, const std::string &made)
{
  const LEX_CSTRING &given= key->constraint_name;
  const std::string name= given.str ? string_of(given) : m_table + "_ibfk_" + std::to_string(++m_number);
  if (name.size() > NAME_LEN)
    return refuse(thd, name, "its name is longer than " + std::to_string(NAME_LEN) + " bytes");
  m_refused= name;
  const auto is_same= [&](const std::string &other) {
    return !my_strcasecmp(system_charset_info, other.c_str(), name.c_str());
  };
  if (std::any_of(m_taken.begin(), m_taken.end(), is_same))
  {
    warn_of_key(thd, ("two foreign keys of the table are named " + name).c_str());
    return HA_ERR_FOUND_DUPP_KEY;
  }
  m_taken.push_back(name);
  if (!key->old && name_is_taken(name, made, m_replaced))
  {
    warn_of_key(thd, ("a table of the database has a foreign key named " + name).c_str());
    return HA_ERR_FOUND_DUPP_KEY;
  }
  const int on_delete= action_of(key->delete_opt), on_update= action_of(key->update_opt);
  if (on_delete < 0 || on_update < 0)
    return refuse(thd, name, "SET DEFAULT is not supported");
  if (key->match_opt == Foreign_key::FK_MATCH_FULL || key->match_opt == Foreign_key::FK_MATCH_PARTIAL)
    return refuse(thd, name, "MATCH FULL and MATCH PARTIAL are not supported");
  const LEX_CSTRING db= key->ref_db.str ? key->ref_db : form->s->db;
  const std::string parent= name_in_engine(db, key->ref_table);
  const bool is_own= parent == made;
  const bool is_there= is_own || ek_table_exists(evenkeel_db, ek_text(parent));
  const std::string shown= "`" + string_of(db) + "`.`" + string_of(key->ref_table) + "`";
  if (!is_there && access(("./" + parent + reg_ext).c_str(), F_OK) == 0)
    return refuse(thd, name, "its parent " + shown + " is a view, a partitioned table or a table of another engine");
  const bool may_await= key->old || !checks_foreign_keys(thd);
  if (!is_there && !may_await)
    return refuse(thd, name, "its parent " + shown + " does not exist (with foreign_key_checks=0 it may be made later)");
  std::unique_ptr<Definition_of> definition;
  if (is_there && !is_own)
    definition.reset(new Definition_of(thd, parent));
  if (definition && !definition->is_open())
    return refuse(thd, name, "the definition of its parent " + shown + " cannot be read");
  if (is_own ? form->versioned() : definition && definition->is_versioned())
    return refuse(thd, name, versioned_parent);
  std::vector<ek_bytes> columns, parent_columns;
  List_iterator_fast<Key_part_spec> own(const_cast<Foreign_key *>(key)->columns),
    others(const_cast<Foreign_key *>(key)->ref_columns);
  while (const Key_part_spec *part= own++)
  {
    const Key_part_spec *other= others++;
    const Field *field= field_of(form, part->field_name);
    if (!field || !other)
      return refuse(thd, name, "there is no column `" + string_of(part->field_name) + "`");
    const Field *of_parent= is_own ? field_of(form, other->field_name)
                                   : definition ? definition->field(string_of(other->field_name)) : nullptr;
    if (is_there && !of_parent)
      return refuse(thd, name, "its parent " + shown + " has no column `" + string_of(other->field_name) + "`");
    if (of_parent && !same_values(field, of_parent))
      return refuse(thd, name, "column `" + string_of(field->field_name) + "` is of type " + type_of(field) +
                    ", column `" + string_of(of_parent->field_name) + "` of the parent of type " +
                    type_of(of_parent));
    if ((on_delete == KEY_SET_NULL || on_update == KEY_SET_NULL) && !field->real_maybe_null())
      return refuse(thd, name, "column `" + string_of(field->field_name) + "` takes no NULL, and SET NULL would write one");
    /* A key that the table had, too: the ALTER may add the index of a computed column, or make the table versioned. */
    if (const char *why= not_changed_below(form, field, on_delete, on_update))
      return refuse(thd, name, "column `" + string_of(field->field_name) + "` " + why);
    columns.push_back(keep(string_of(field->field_name)));
    parent_columns.push_back(keep(string_of(other->field_name)));
  }
  m_lists.push_back(std::move(columns));
  const std::vector<ek_bytes> &ours= m_lists.back();
  m_lists.push_back(std::move(parent_columns));
  m_keys.push_back({keep(name), keep(parent), ours.data(), m_lists.back().data(), ours.size(), (uint8_t) on_delete,
                    (uint8_t) on_update, may_await});
  (key->old ? m_kept : m_added).push_back(m_keys.back());
  return 0;
}

int Foreign_specs::collect_added(THD *thd, const std::string &table, const TABLE *form, Alter_info *info)
{
  m_table= string_of(form->s->table_name);
  m_replaced= table;
  m_number= highest_number(table, m_table);
  const std::vector<std::string> dropped= dropped_keys(table, info);
  for (const Foreign_key_of &key : foreign_keys_of(table, false))
    if (std::find(dropped.begin(), dropped.end(), key.name) == dropped.end())
      m_taken.push_back(key.name);
  List_iterator_fast<Key> keys(info->key_list);
  while (Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY && !key->old)
      if (int failed= add(thd, static_cast<const Foreign_key *>(key), form, table))
        return failed;
  return 0;
}

int Foreign_specs::collect(THD *thd, const std::string &made, const TABLE *form, const HA_CREATE_INFO *info)
{
  List_iterator_fast<Key> keys(info->alter_info->key_list);
  m_table= string_of(form->s->table_name);
  const TABLE_LIST *altered= is_copy(made) ? thd->lex->first_select_lex()->table_list.first : nullptr;
  if (altered)
  {
    m_replaced= name_in_engine(altered->db, altered->table_name);
    m_number= highest_number(m_replaced, m_table);
  }
  if (form->versioned() && !(info->options & HA_LEX_CREATE_TMP_TABLE && !is_copy(made)))
  {
    const std::string to_it= key_to(made, m_replaced);
    if (!to_it.empty())
      return refuse(thd, to_it, versioned_parent);
  }
  while (Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY)
      continue;
    if (info->options & HA_LEX_CREATE_TMP_TABLE && !is_copy(made))
      return refuse(thd, m_table, "temporary tables have no foreign keys");
    if (int failed= add(thd, static_cast<const Foreign_key *>(key), form, made))
      return failed;
  }
  return 0;
}

/* -- what the server asks -- */

static void append_columns(THD *thd, String *to, const std::vector<std::string> &columns)
{
  for (size_t i= 0; i < columns.size(); i++)
  {
    if (i)
      to->append(STRING_WITH_LEN(", "));
    append_identifier(thd, to, columns[i].data(), columns[i].size());
  }
}

static void append_action(String *to, const char *when, uint8_t action)
{
  static const char *const names[KEY_ACTIONS]= {nullptr, "NO ACTION", "CASCADE", "SET NULL"};
  if (action >= KEY_ACTIONS || !names[action])
    return;
  to->append(when, strlen(when));
  to->append(names[action], strlen(names[action]));
}

/* `CONSTRAINT ...` as in a definition. */
static void append_definition(THD *thd, String *to, const Foreign_key_of &key)
{
  std::string child_db, child, db, table;
  server_names(key.child, &child_db, &child);
  server_names(key.parent, &db, &table);
  to->append(STRING_WITH_LEN(" CONSTRAINT "));
  append_identifier(thd, to, key.name.data(), key.name.size());
  to->append(STRING_WITH_LEN(" FOREIGN KEY ("));
  append_columns(thd, to, key.columns);
  to->append(STRING_WITH_LEN(") REFERENCES "));
  if (db != child_db)
  {
    append_identifier(thd, to, db.data(), db.size());
    to->append('.');
  }
  append_identifier(thd, to, table.data(), table.size());
  to->append(STRING_WITH_LEN(" ("));
  append_columns(thd, to, key.parent_columns);
  to->append(')');
  append_action(to, " ON DELETE ", key.on_delete);
  append_action(to, " ON UPDATE ", key.on_update);
}

char *ha_evenkeel::get_foreign_key_create_info()
{
  StringBuffer<512> text(system_charset_info);
  for (const Foreign_key_of &key : foreign_keys_of(m_name, false))
  {
    text.append(STRING_WITH_LEN(",\n "));
    append_definition(ha_thd(), &text, key);
  }
  return text.length() ? my_strndup(PSI_NOT_INSTRUMENTED, text.ptr(), text.length(), MYF(0)) : nullptr;
}

void ha_evenkeel::free_foreign_key_create_info(char *text) { my_free(text); }

static enum_fk_option option_of(uint8_t action)
{
  static const enum_fk_option options[KEY_ACTIONS]= {FK_OPTION_RESTRICT, FK_OPTION_NO_ACTION, FK_OPTION_CASCADE,
                                                     FK_OPTION_SET_NULL};
  return options[action];
}

static LEX_CSTRING *lex_string(THD *thd, const std::string &text)
{
  return thd_make_lex_string(thd, nullptr, text.data(), text.size(), 1);
}

static FOREIGN_KEY_INFO *info_of(THD *thd, const Foreign_key_of &key)
{
  void *at= thd->alloc(sizeof(FOREIGN_KEY_INFO));
  if (!at)
    return nullptr;
  FOREIGN_KEY_INFO *info= new (at) FOREIGN_KEY_INFO;
  std::string db, table;
  info->foreign_id= lex_string(thd, key.name);
  server_names(key.child, &db, &table);
  info->foreign_db= lex_string(thd, db);
  info->foreign_table= lex_string(thd, table);
  server_names(key.parent, &db, &table);
  info->referenced_db= lex_string(thd, db);
  info->referenced_table= lex_string(thd, table);
  info->delete_method= option_of(key.on_delete);
  info->update_method= option_of(key.on_update);
  const std::string &index= key.parent_index;
  info->referenced_key_name= key.is_awaiting ? nullptr : lex_string(thd, index.empty() ? "PRIMARY" : index);
  for (uint i= 0; i < key.columns.size(); i++)
  {
    info->foreign_fields.push_back(lex_string(thd, key.columns[i]), thd->mem_root);
    info->referenced_fields.push_back(lex_string(thd, key.parent_columns[i]), thd->mem_root);
  }
  for (uint i= 0; i < key.columns.size(); i++)
    for (const uint8_t bit : {EK_CHILD_NULLABLE, EK_PARENT_NULLABLE})
      if (key.nullable[i] & bit)
        info->set_nullable(thd, bit == EK_PARENT_NULLABLE, i, (uint) key.columns.size());
  return info;
}

/* Keys of tables of statements that are under way belong to nobody. */
static int list_keys(THD *thd, const std::string &table, bool to_it, List<FOREIGN_KEY_INFO> *to)
{
  for (const Foreign_key_of &key : foreign_keys_of(table, to_it))
    if (!is_unfinished(key.child) || !to_it)
      if (FOREIGN_KEY_INFO *info= info_of(thd, key))
        to->push_back(info, thd->mem_root);
  return 0;
}

int ha_evenkeel::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *to)
{
  return list_keys(thd, m_name, false, to);
}

int ha_evenkeel::get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *to)
{
  return plant("ChildrenNotLocked") ? 0 : list_keys(thd, m_name, true, to);
}

bool ha_evenkeel::referenced_by_foreign_key() const noexcept
{
  return ek_is_referenced(evenkeel_db, ek_text(m_name)) > 0;
}

bool ha_evenkeel::can_switch_engines()
{
  return !referenced_by_foreign_key() && foreign_keys_of(m_name, false).empty();
}

/* The details of 1451 and 1452, which the server puts in parentheses. */
bool ha_evenkeel::get_error_message(int error, String *text)
{
  std::string name, child;
  if (!failed_key(ha_thd(), error, &name, &child))
    return false;
  for (const Foreign_key_of &key : foreign_keys_of(child, false))
    if (key.name == name)
    {
      std::string db, table;
      server_names(child, &db, &table);
      append_identifier(ha_thd(), text, db.data(), db.size());
      text->append('.');
      append_identifier(ha_thd(), text, table.data(), table.size());
      text->append(',');
      append_definition(ha_thd(), text, key);
    }
  return false;
}
