/* Definitions of tables, from the server's to the engine's. */
#ifndef EVENKEEL_DDL_H
#define EVENKEEL_DDL_H
#include "server.h"
#include "keys.h"
#include <string>

/* Does the engine see to its uniqueness. */
uint8_t is_unique(const KEY *key);
/* Is the field of the table a part of a key. */
bool in_a_key(const TABLE *table, const Field *field);
/* Is a table of this name one that an ALTER has copied rows into, which takes the place of another. */
bool is_copy(const std::string &name);
/* A statement that copies a table: nobody else sees the new one. */
bool copies_table(THD *thd);
#endif
