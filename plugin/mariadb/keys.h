/* Keys: the engine's key parts for the server's, and values from key images. */
#ifndef EVENKEEL_KEYS_H
#define EVENKEEL_KEYS_H
#include "server.h"
#include <string>
#include <vector>

/* The engine's column of each field, -1 for a field without one. The engine has the stored columns, and the virtual
   columns that some key contains. */
std::vector<int> engine_columns(const TABLE *table);

/* The name of the one column, always NULL, that the engine has for a table of only virtual columns. No user's name
   begins in this way, because the first character is not allowed in identifiers. */
extern const std::string FILLER;

/* True if the part holds the whole field. */
bool is_whole(const KEY_PART_INFO *part);

/* Fills in the parts of a key; returns a reason if it cannot be a key. */
const char *key_parts(const KEY *key, const std::vector<int> &columns, std::vector<ek_part> *parts);

/* The most bytes that a key part takes in the engine. */
uint64_t key_part_bytes_max(const KEY_PART_INFO *part);

/* The values of the first parts of a key in the server's format. After those of a secondary key, `extended` parts of
   the primary key may follow. The values point into `image`. */
std::vector<ek_value> key_values(const TABLE *table, uint index, const uchar *image,
                                 key_part_map parts);
/* The same into `to`, whose memory is used again. */
void key_values(const TABLE *table, uint index, const uchar *image, key_part_map parts,
                std::vector<ek_value> *to);
#endif
