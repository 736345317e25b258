/* Definitions of tables, from the server's to the engine's. */
#ifndef EVENKEEL_DDL_H
#define EVENKEEL_DDL_H
#include "server.h"
#include "keys.h"

/* Does the engine see to its uniqueness. */
uint8_t is_unique(const KEY *key);
/* Is the field of the table a part of a key. */
bool in_a_key(const TABLE *table, const Field *field);
#endif
