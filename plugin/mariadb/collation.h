/* Weights of strings by the server's collations, as bytes whose order is that of the collation. */
#ifndef EVENKEEL_COLLATION_H
#define EVENKEEL_COLLATION_H
#include "server.h"
#include <string>

/* The functions that the engine calls. */
extern const ek_collations evenkeel_collations;

/* False for a collation whose weights the server does not compare by. */
bool collation_has_weights(const CHARSET_INFO *cs);

/* Appends the weights of the first `chars` characters, 0 for all; false if there is no such
   collation. */
bool collation_weights(uint16_t collation, uint32_t chars, const uchar *value, size_t len,
                       std::string *out);

/* Compares the order of weights with the server's own comparison, for every collation: `pairs` random pairs of
   strings each. `report` gets a line per collation that differs. Returns the number of compared pairs. */
ulonglong collation_self_test(ulonglong seed, uint pairs, std::string *report);
#endif
