/* Foreign keys: the clauses of CREATE and ALTER TABLE as the engine's, and what the server asks about them. */
#ifndef EVENKEEL_FOREIGN_H
#define EVENKEEL_FOREIGN_H
#include "engine.h"
#include <list>
#include <string>
#include <vector>

/* What the engine does with the rows that refer to a row of the parent, in its own numbers (`crates/capi`). The
   server's `enum_fk_option` has others. */
enum Key_action : uint8_t { KEY_RESTRICT, KEY_NO_ACTION, KEY_CASCADE, KEY_SET_NULL, KEY_ACTIONS };

/* True if the engine deletes or changes rows of the child for a key. */
static inline bool cascades(int on_delete, int on_update)
{
  return on_delete >= KEY_CASCADE || on_update >= KEY_CASCADE;
}

/* True if the engine may change the key's columns of the child. */
static inline bool changes_columns(int on_delete, int on_update)
{
  return on_delete == KEY_SET_NULL || on_update >= KEY_CASCADE;
}

/* A foreign key as the engine has it. */
struct Foreign_key_of
{
  std::string name, child, parent, parent_index;
  std::vector<std::string> columns, parent_columns;
  std::vector<uint8_t> nullable;
  uint8_t on_delete, on_update;
  bool is_awaiting;
};

/* The foreign keys of a table; with `to_it`, those that refer to it. They are ordered by name, as InnoDB's are.
   Nothing for a table that the engine does not have. */
std::vector<Foreign_key_of> foreign_keys_of(const std::string &table, bool to_it);

/* The server's names of a table of the engine. */
void server_names(const std::string &name, std::string *schema, std::string *table);

/* True if the connection's changes are checked. */
bool checks_foreign_keys(THD *thd);

/* The foreign keys that a statement gives a table, in the engine's form. */
class Foreign_specs
{
public:
  /* Collects the keys of a table to be made, which the engine calls `made`. Nonzero, with a warning that says why: a
     key is not possible. */
  int collect(THD *thd, const std::string &made, const TABLE *form, const HA_CREATE_INFO *info);
  /* Collects the keys that an ALTER in place adds to a table; as `collect`. */
  int collect_added(THD *thd, const std::string &table, const TABLE *form, Alter_info *info);
  const std::vector<ek_foreign> &keys() const { return m_keys; }
  /* Of a table that an ALTER copies: the keys that the statement adds, and those that the table had. */
  const std::vector<ek_foreign> &added() const { return m_added; }
  const std::vector<ek_foreign> &kept() const { return m_kept; }
  /* The name of the key for which the collection failed. */
  const std::string &refused() const { return m_refused; }
  /* The table that the copy replaces. */
  const std::string &replaced() const { return m_replaced; }

private:
  int refuse(THD *thd, const std::string &key, const std::string &why);
  int add(THD *thd, const Foreign_key *key, const TABLE *form, const std::string &made);
  ek_bytes keep(const std::string &text);

  /* Names that no further key may have. */
  std::vector<std::string> m_taken;
  std::list<std::string> m_texts;
  std::list<std::vector<ek_bytes>> m_lists;
  std::vector<ek_foreign> m_keys, m_added, m_kept;
  std::string m_table, m_replaced, m_refused;
  uint m_number= 0;
};

/* The warning that precedes the server's error 1005 or 1215. */
void warn_of_key(THD *thd, const char *why);

/* True if a table may be dropped although keys of these tables refer to it: all of them are dropped with the
   database. */
bool drops_children_too(THD *thd, const std::string &table);

/* Keys of a table that get new names with it, because their names begin with its name, as those do that InnoDB and
   this engine give. */
class Renamed_keys
{
public:
  Renamed_keys(const std::string &from, const std::string &to);
  const std::vector<ek_rename> &pairs() const { return m_pairs; }

private:
  std::list<std::string> m_names;
  std::vector<ek_rename> m_pairs;
};

/* The names of the keys of a table that an ALTER drops, as the engine spells them. */
std::vector<std::string> dropped_keys(const std::string &table, Alter_info *info);
/* True if a column is in a foreign key of its table, or in one that refers to it, which the ALTER does not drop. */
bool in_foreign_key(const std::string &table, const Field &field, Alter_info *info);
/* True if an ALTER adds a foreign key with a column that it makes, renames or changes; `old` has the columns of
   before. */
bool adds_key_of_new_column(const TABLE *altered, const std::vector<const Field *> &old, Alter_info *info);

/* Of an ALTER in place: true if a column takes no NULL afterwards, while the engine would let a cascade write one.
   `is_nullable`: to the engine. */
bool takes_null_of_cascade(const std::string &table, Alter_inplace_info *info, const Field *field, const Field *was,
                           bool is_nullable);

/* Raises InnoDB's error for an index that an ALTER of a table drops and a key needs; false if the error is another. */
bool raise_needed_index(const ek_error &error, const std::string &table, Alter_inplace_info *info);

/* Enforces the keys that an ALTER in place adds, and looks at the rows that are there: 0, or the error of the
   statement for the server to print. The change of the table makes the keys permanent. */
int prove_keys(THD *thd, const std::string &table, const Foreign_specs &keys);
/* Removes keys that were proved. */
void forget_keys(const std::string &table);

/* The keys of a copy, which its rows get when all of them are there (`add_keys_of_copy`): no other connection changes
   the copy, and the table that it replaces keeps the parents' rows meanwhile. */
void keep_keys_of_copy(THD *thd, const std::string &copy, Foreign_specs &&keys);
/* 0, or the error of the statement for the server to print. */
int add_keys_of_copy(THD *thd, const std::string &copy);

/* The table that a copying ALTER TABLE replaces by the copy of this name: its name while both exist. Empty for a name
   of another kind. */
std::string replaced_by(const std::string &copy);
#endif
