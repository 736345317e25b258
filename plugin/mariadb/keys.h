/* Keys: how the server's key parts are keys of the engine, and values from key images. */
#ifndef EVENKEEL_KEYS_H
#define EVENKEEL_KEYS_H
#include "server.h"
#include <string>
#include <vector>

/* The engine's column of each field, -1 for one it does not have. It has the stored ones, and
   virtual ones that some key is made of. */
std::vector<int> engine_columns(const TABLE *table);

/* The one column, always NULL, that the engine has of a table of virtual columns alone; no name of a user
   begins so: it is no character of identifiers. */
extern const std::string FILLER;

/* Does the part hold the whole field. */
bool is_whole(const KEY_PART_INFO *part);

/* The parts of a key; a reason if it cannot be one. */
const char *key_parts(const KEY *key, const std::vector<int> &columns, std::vector<ek_part> *parts);

/* The most bytes that a key part takes in the engine. */
uint64_t key_part_bytes_max(const KEY_PART_INFO *part);

/* The values of the first parts of a key in the server's format. Behind those of a secondary key,
   `extended` ones of the primary key may follow. Their bytes lie in `image`. */
std::vector<ek_value> key_values(const TABLE *table, uint index, const uchar *image,
                                 key_part_map parts);
#endif
