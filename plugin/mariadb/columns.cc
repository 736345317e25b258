#include "columns.h"

/* Types by their numbers in the engine's catalog. */
enum { INT8= 2, INT16= 3, INT32= 4, INT64= 5, UINT8_T= 6, UINT16_T= 7, UINT32_T= 8, UINT64_T= 9,
       FLOAT32= 10, FLOAT64= 11, FIXED_BYTES= 13, BYTES= 14 };
static const uint32_t FIXED_MAX= 255;

static Column integer(const Field *field, uint8_t type)
{
  const bool is_unsigned= field->flags & UNSIGNED_FLAG;
  return {is_unsigned ? Column::AS_UINT : Column::AS_INT,
          (uint8_t)(is_unsigned ? type + (UINT8_T - INT8) : type), 0, 0};
}

/* A number stored with its low byte first, ordered by its value. */
static Column little_endian(uint32_t bytes)
{
  uint8_t type= bytes == 1 ? UINT8_T : bytes == 2 ? UINT16_T : bytes <= 4 ? UINT32_T : UINT64_T;
  return {Column::AS_LITTLE_ENDIAN, type, 0, 0};
}

static Column fixed(uint32_t bytes)
{
  if (bytes == 0 || bytes > FIXED_MAX)
    return {Column::AS_FIXED, BYTES, bytes, 0};
  return {Column::AS_FIXED, FIXED_BYTES, bytes, 0};
}

Column Column::of(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_TINY: return integer(field, INT8);
  case MYSQL_TYPE_SHORT: return integer(field, INT16);
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG: return integer(field, INT32);
  case MYSQL_TYPE_LONGLONG: return integer(field, INT64);
  case MYSQL_TYPE_FLOAT: return {AS_FLOAT, FLOAT32, 0, 0};
  case MYSQL_TYPE_DOUBLE: return {AS_FLOAT, FLOAT64, 0, 0};
  case MYSQL_TYPE_YEAR:
  case MYSQL_TYPE_NEWDATE:
  case MYSQL_TYPE_DATE:
  case MYSQL_TYPE_ENUM:
  case MYSQL_TYPE_SET: return little_endian(field->pack_length());
  case MYSQL_TYPE_STRING:
    /* Types of a plugin (UUID, INET6) are stored as bytes in their order. */
    if (field->charset() != &my_charset_bin && field->has_charset())
      return {AS_CHARS, BYTES, field->pack_length(), 0};
    return fixed(field->pack_length());
  case MYSQL_TYPE_VARCHAR:
  case MYSQL_TYPE_VAR_STRING: return {AS_VARIABLE, BYTES, field->field_length, 0};
  case MYSQL_TYPE_TINY_BLOB:
  case MYSQL_TYPE_MEDIUM_BLOB:
  case MYSQL_TYPE_LONG_BLOB:
  case MYSQL_TYPE_BLOB:
  case MYSQL_TYPE_GEOMETRY:
  {
    const uint len_bytes= field->pack_length() - portable_sizeof_char_ptr;
    const uint64_t max= (1ULL << (8 * len_bytes)) - 1;
    return {AS_BLOB, BYTES, (uint32_t) max, 0};
  }
  /* Decimals, times in the present formats and bits are big-endian and ordered by their bytes. */
  default: return fixed(field->pack_length());
  }
}

static ek_value bytes(const uchar *ptr, size_t len)
{
  return {EK_BYTES, 0, {ptr, len}};
}

static uint64_t read_little_endian(const uchar *ptr, uint len)
{
  uint64_t n= 0;
  for (uint i= 0; i < len; i++)
    n|= (uint64_t) ptr[i] << (8 * i);
  return n;
}

static ek_value number(uint8_t kind, uint64_t bits)
{
  return {kind, bits, {nullptr, 0}};
}

ek_value image_of(const Field *field, const uchar *ptr, size_t len)
{
  switch (Column::of(field).how)
  {
  case Column::AS_INT:
  {
    const uint unused= 64 - 8 * (uint) len;
    const uint64_t bits= read_little_endian(ptr, (uint) len) << unused;
    return number(EK_INT, (uint64_t)((int64_t) bits >> unused));
  }
  case Column::AS_UINT:
  case Column::AS_LITTLE_ENDIAN: return number(EK_UINT, read_little_endian(ptr, (uint) len));
  case Column::AS_FLOAT:
  {
    double d;
    if (field->real_type() == MYSQL_TYPE_FLOAT)
    {
      float f;
      float4get(f, ptr);
      d= f;
    }
    else
      float8get(d, ptr);
    uint64_t bits;
    memcpy(&bits, &d, sizeof bits);
    return number(EK_FLOAT, bits);
  }
  case Column::AS_CHARS:
  {
    /* Stored without padding spaces, unless the collation distinguishes strings by them. */
    CHARSET_INFO *cs= field->charset();
    if (!(cs->state & MY_CS_NOPAD))
      return bytes(ptr, cs->lengthsp((const char *) ptr, len));
    return bytes(ptr, MY_MIN(len, cs->charpos(ptr, ptr + len, field->char_length())));
  }
  default: return bytes(ptr, len);
  }
}

ek_value value_of(const Field *field, const uchar *record, String *scratch)
{
  const my_ptrdiff_t offset= record - field->table->record[0];
  if (field->is_null_in_record(record))
    return number(EK_NULL, 0);
  const uchar *ptr= field->ptr + offset;
  switch (Column::of(field).how)
  {
  case Column::AS_VARIABLE:
  {
    const Field_varstring *var= static_cast<const Field_varstring *>(field);
    const size_t len= var->length_bytes == 1 ? *ptr : uint2korr(ptr);
    return bytes(ptr + var->length_bytes, len);
  }
  case Column::AS_BLOB:
  {
    const Field_blob *blob= static_cast<const Field_blob *>(field);
    const uint len_bytes= field->pack_length() - portable_sizeof_char_ptr;
    const uint32 len= blob->get_length(ptr, len_bytes);
    const uchar *data;
    memcpy(&data, ptr + len_bytes, sizeof data);
    return bytes(data, len);
  }
  default: return image_of(field, ptr, field->pack_length());
  }
}

static bool put_bytes(Field *field, Column::How how, uchar *ptr, const ek_value &value,
                      MEM_ROOT *blobs)
{
  const uchar *data= value.bytes.ptr;
  const size_t len= value.bytes.len;
  switch (how)
  {
  case Column::AS_CHARS:
  {
    const size_t room= field->pack_length();
    const size_t some= MY_MIN(len, room);
    memcpy(ptr, data, some);
    if (some < room)
      field->charset()->fill((char *) ptr + some, room - some, field->charset()->pad_char);
    return false;
  }
  case Column::AS_VARIABLE:
  {
    const Field_varstring *var= static_cast<const Field_varstring *>(field);
    if (len > field->field_length)
      return true;
    if (var->length_bytes == 1)
      *ptr= (uchar) len;
    else
      int2store(ptr, len);
    memcpy(ptr + var->length_bytes, data, len);
    return false;
  }
  case Column::AS_BLOB:
  {
    const Field_blob *blob= static_cast<const Field_blob *>(field);
    const uint len_bytes= field->pack_length() - portable_sizeof_char_ptr;
    const uchar *at= data;
    if (blobs)
    {
      uchar *copy= (uchar *) alloc_root(blobs, len + 1);
      if (!copy)
        return true;
      memcpy(copy, data, len);
      at= copy;
    }
    const_cast<Field_blob *>(blob)->store_length(ptr, len_bytes, (uint32) len);
    memcpy(ptr + len_bytes, &at, sizeof at);
    return false;
  }
  default:
    if (len != field->pack_length())
      return true;
    memcpy(ptr, data, len);
    return false;
  }
}

bool put_value(Field *field, Column::How how, uchar *record, const ek_value &value,
               MEM_ROOT *blobs)
{
  const my_ptrdiff_t offset= record - field->table->record[0];
  uchar *ptr= field->ptr + offset;
  if (value.kind == EK_NULL)
  {
    field->set_null(offset);
    /* The bytes under a NULL are the default, so that equal rows have equal bytes. */
    memcpy(ptr, field->table->s->default_values + (field->ptr - field->table->record[0]),
           field->pack_length());
    return !field->real_maybe_null();
  }
  field->set_notnull(offset);
  if (value.kind == EK_BYTES)
    return put_bytes(field, how, ptr, value, blobs);
  if (how == Column::AS_FLOAT)
  {
    double d;
    memcpy(&d, &value.bits, sizeof d);
    const float f= (float) d;
    if (field->real_type() == MYSQL_TYPE_FLOAT)
      float4store(ptr, f);
    else
      float8store(ptr, d);
    return false;
  }
  switch (const uint len= field->pack_length())
  {
  case 4: int4store(ptr, (uint32) value.bits); break;
  case 8: int8store(ptr, value.bits); break;
  default:
    for (uint i= 0; i < len; i++)
      ptr[i]= (uchar)(value.bits >> (8 * i));
  }
  return false;
}

bool same(const ek_value &a, const ek_value &b)
{
  return a.kind == b.kind && a.bits == b.bits && a.bytes.len == b.bytes.len &&
         (a.bytes.len == 0 || memcmp(a.bytes.ptr, b.bytes.ptr, a.bytes.len) == 0);
}
