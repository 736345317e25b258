/* Columns: how a field of the server is stored, and values from and to record buffers. */
#ifndef EVENKEEL_COLUMNS_H
#define EVENKEEL_COLUMNS_H
#include "server.h"

/* How a field is stored. */
struct Column
{
  enum How { AS_INT, AS_UINT, AS_LITTLE_ENDIAN, AS_FLOAT, AS_FIXED, AS_CHARS, AS_VARIABLE, AS_BLOB };
  How how;
  uint8_t type_code;
  uint32_t a, b;

  /* The type of the engine's column `FILLER`. */
  static const uint8_t FILLER_CODE= 2;
  /* The engine's type of strings of bytes (docs/format/page.md). */
  static const uint8_t BYTES_CODE= 14;

  static Column of(const Field *field);
};

/* The value of `field` in `record`; its bytes stay where they are, or go to `scratch`. */
ek_value value_of(const Field *field, const uchar *record, String *scratch);
/* The value of a `field` whose image of `len` bytes, possibly a prefix, is at `ptr`; not for BLOB and VARCHAR, whose
   images begin with a length. */
ek_value image_of(const Field *field, const uchar *ptr, size_t len);
/* Puts a value into `record`. The bytes of a BLOB are copied to `blobs`, or stay where they are if `blobs` is null. */
bool put_value(Field *field, Column::How how, uchar *record, const ek_value &value,
               MEM_ROOT *blobs);
/* True if two values of one column have the same bytes. */
bool same(const ek_value &a, const ek_value &b);
#endif
