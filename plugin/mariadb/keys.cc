#include "keys.h"
#include "collation.h"
#include "columns.h"

const std::string FILLER= "\xF4\x8F\xBF\xBF";

std::vector<int> engine_columns(const TABLE *table)
{
  std::vector<bool> keyed(table->s->fields);
  for (uint i= 0; i < table->s->keys; i++)
    for (uint j= 0; j < table->key_info[i].user_defined_key_parts; j++)
      keyed[table->key_info[i].key_part[j].fieldnr - 1]= true;
  std::vector<int> columns;
  int next= 0;
  for (Field **field= table->field; *field; field++)
    columns.push_back((*field)->stored_in_db() || keyed[(*field)->field_index] ? next++ : -1);
  return columns;
}

static bool is_blob(const KEY_PART_INFO *part)
{
  return part->field->flags & BLOB_FLAG;
}

bool is_whole(const KEY_PART_INFO *part)
{
  /* For a part that is a prefix the server has a separate field, of the prefix's length. */
  return !is_blob(part) && !(part->key_part_flag & HA_PART_KEY_SEG);
}

/* The collation that orders a field; 0 for bytes. */
static uint16_t collation_of(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_STRING:
    if (!field->has_charset())
      return 0;
    /* fall through */
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VAR_STRING:
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB: break;
  default: return 0;
  }
  const CHARSET_INFO *cs= field->charset();
  if (cs == &my_charset_bin)
    return 0;
  return (uint16_t) cs->number;
}

/* The reason why a field cannot be in a key. */
static const char *refused(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TIMESTAMP:
  case MYSQL_TYPE_DATETIME:
  case MYSQL_TYPE_TIME: return "indexes of times in formats of MySQL 5.5 and before";
  default: break;
  }
  if (collation_of(field) && !collation_has_weights(field->charset()))
    return "indexes of columns with the collation filename";
  return nullptr;
}

static ek_part part_of(const KEY_PART_INFO *part, uint16_t column)
{
  const uint16_t collation= collation_of(part->field);
  const uint chars= collation ? part->field->charset()->mbmaxlen : 1;
  return {column, collation, is_whole(part) ? 0 : part->length / chars,
          (uint8_t)((part->key_part_flag & HA_REVERSE_SORT) != 0)};
}

const char *key_parts(const KEY *key, const std::vector<int> &columns, std::vector<ek_part> *parts)
{
  if (key->algorithm == HA_KEY_ALG_FULLTEXT || key->algorithm == HA_KEY_ALG_RTREE)
    return "FULLTEXT and SPATIAL indexes";
  for (uint i= 0; i < key->user_defined_key_parts; i++)
  {
    const KEY_PART_INFO *part= &key->key_part[i];
    if (const char *why= refused(part->field))
      return why;
    const int column= columns[part->fieldnr - 1];
    if (column < 0)
      return "indexes of columns that the engine does not have";
    parts->push_back(part_of(part, (uint16_t) column));
  }
  return nullptr;
}

uint64_t key_part_bytes_max(const KEY_PART_INFO *part)
{
  const ek_part made= part_of(part, 0);
  if (!made.collation)
    return 2 * part->length + 3;
  const uint32_t bytes= is_blob(part) ? part->length : part->field->field_length;
  return evenkeel_collations.bytes_max(made.collation, made.prefix, bytes) + 3;
}

/* The value of one part, and where the next part begins. */
static ek_value image_value(const KEY_PART_INFO *part, const uchar *image, const uchar **next)
{
  *next= image + part->store_length;
  if (part->null_bit && *image++)
    return {EK_NULL, 0, {nullptr, 0}};
  if (part->key_part_flag & (HA_BLOB_PART | HA_VAR_LENGTH_PART))
    return {EK_BYTES, 0, {image + HA_KEY_BLOB_LENGTH, uint2korr(image)}};
  return image_of(part->field, image, part->length);
}

std::vector<ek_value> key_values(const TABLE *table, uint index, const uchar *image,
                                 key_part_map parts)
{
  std::vector<ek_value> values;
  key_values(table, index, image, parts, &values);
  return values;
}

void key_values(const TABLE *table, uint index, const uchar *image, key_part_map parts,
                std::vector<ek_value> *to)
{
  const KEY *key= &table->key_info[index];
  const uint own= key->user_defined_key_parts;
  std::vector<ek_value> &values= *to;
  values.clear();
  values.reserve(own);
  for (uint i= 0; i < key->ext_key_parts && (parts >> i) & 1; i++)
    values.push_back(image_value(&key->key_part[i], image, &image));
  if (values.size() <= own)
    return;
  const std::vector<ek_value> all= values;
  values.resize(own);
  /* The engine's entry continues with the whole primary key; the server's image does not repeat parts that the key
     has itself. */
  const KEY *primary= &table->key_info[table->s->primary_key];
  for (uint p= 0; p < primary->user_defined_key_parts; p++)
  {
    uint i= 0;
    while (i < all.size() && (key->key_part[i].fieldnr != primary->key_part[p].fieldnr ||
                              key->key_part[i].length != primary->key_part[p].length))
      i++;
    if (i == all.size())
      break;
    values.push_back(all[i]);
  }
}
