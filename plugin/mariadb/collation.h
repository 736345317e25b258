/* Weights of the server's collations as bytes whose order is the collation's. */
#ifndef EVENKEEL_COLLATION_H
#define EVENKEEL_COLLATION_H
#include "server.h"
#include <string>

/* What the engine calls. */
extern const ek_collations evenkeel_collations;

/* False for a collation whose weights are not what the server compares by. */
bool collation_has_weights(const CHARSET_INFO *cs);

/* Appends the weights of the first `chars` characters, 0 for all; false if there is no such
   collation. */
bool collation_weights(uint16_t collation, uint32_t chars, const uchar *value, size_t len,
                       std::string *out);

/* Compares weights with the server's own comparison, for every collation it has: `pairs` random
   pairs of strings each. Returns a line per collation that differs, in `report`, and how many
   pairs were compared. */
ulonglong collation_self_test(ulonglong seed, uint pairs, std::string *report);
#endif
