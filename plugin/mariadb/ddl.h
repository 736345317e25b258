/* Definitions of tables: from the server's to the engine's. */
#ifndef EVENKEEL_DDL_H
#define EVENKEEL_DDL_H
#include "server.h"
#include "keys.h"
#include <string>

/* Nonzero if the engine checks the uniqueness of the key. */
uint8_t is_unique(const KEY *key);
/* True if the field of the table is part of a key. */
bool in_a_key(const TABLE *table, const Field *field);
/* True for the name of a table into which an ALTER copies rows and which then replaces another table. */
bool is_copy(const std::string &name);
/* True if the server itself looks for duplicates of some keys among the rows that it has written. */
bool server_checks_keys(const TABLE_SHARE *share);
/* True for a statement that copies a table: no other connection sees the new table. */
bool copies_table(THD *thd);
#endif
