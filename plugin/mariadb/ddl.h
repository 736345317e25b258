/* Definitions of tables, from the server's to the engine's. */
#ifndef EVENKEEL_DDL_H
#define EVENKEEL_DDL_H
#include "server.h"
#include <vector>

/* The parts of a key over fields that lie in `columns` (-1: not stored); a reason if it cannot be
   one. */
const char *key_parts(const KEY *key, const std::vector<int> &columns, std::vector<ek_part> *parts);
/* Is the field of the table a part of a key. */
bool in_a_key(const TABLE *table, const Field *field);
#endif
