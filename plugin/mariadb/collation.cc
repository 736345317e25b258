#include "collation.h"
#include <atomic>
#include <new>
#include <vector>

/* A collation gives the weights of a string in units of one length. A comparison compares the units and then, where
   the collation pads, endless spaces. A key is encoded as follows:
   - units: each in a code without byte 0, in the order of the units;
   - a run of spaces: a space, then 1 and the length of the run if a unit below a space follows, or 3 and the length,
     falling, if a unit above a space follows;
   - the end: a space, then 2.
   So the end compares like endless spaces. Without padding the end adds nothing, and nothing is below everything.
   For a collation of several levels the key has one such string after the other. */

/* Bytes in a key of the weights of one character, at most, where one character has many: U+FDFA has 18 of two bytes
   each, three of them spaces whose runs take two more. */
static const uint CHARACTER_BYTES_MAX= 42;

/* The encoding of a level's units. */
enum class Code { BYTE, SMALL, PAIR };

struct Level
{
  uint flags;
  uint unit;
  uint32 space;
  Code code;
  bool pads;
};

/* Two old collations trim spaces, and weigh all their levels in one string that ends by itself. */
static bool is_czech(const CHARSET_INFO *cs) { return cs->number == 2 || cs->number == 34; }

/* The server compares tis620_thai_nopad_ci by strcmp, so bytes after a byte 0 are ignored. */
static bool ends_at_zero(const CHARSET_INFO *cs) { return cs->number == 1042; }

/* The server compares the two Chinese collations of Big5 by the codes of characters, but its sort keys count
   strokes, which is another order. Keys here are made of the codes. */
static bool is_big5(const CHARSET_INFO *cs) { return cs->number == 1 || cs->number == 1025; }

/* In the order of the server's comparison: letters by their own order, characters by their code, other bytes last. */
static size_t big5_weights(CHARSET_INFO *cs, uchar *weights, const uchar *value, size_t len)
{
  uchar *out= weights;
  for (const uchar *at= value, *end= value + len; at < end; out+= 2)
  {
    const int bytes= cs->cset->charlen(cs, at, end);
    const uint n= bytes == 1 ? cs->sort_order[*at] : bytes == 2 ? at[0] << 8 | at[1] : 0xff00 + *at;
    out[0]= (uchar)(n >> 8);
    out[1]= (uchar) n;
    at+= bytes == 2 ? 2 : 1;
  }
  return out - weights;
}

static inline uint32 unit_at(const uchar *p, uint unit)
{
  uint32 n= 0;
  for (uint i= 0; i < unit; i++)
    n= n << 8 | p[i];
  return n;
}

static Level level_of(CHARSET_INFO *cs, uint number, bool multi, bool pads)
{
  Level level;
  uchar space[8], weight[64];
  const int len= cs->wc_mb(' ', space, space + sizeof space);
  level.flags= multi ? 1U << number : 0;
  level.unit= (uint)(is_big5(cs) ? big5_weights(cs, weight, space, MY_MAX(len, 0))
                                 : cs->strnxfrm(weight, sizeof weight, 1, space, MY_MAX(len, 0),
                                                level.flags));
  if (level.unit < 1 || level.unit > 3)
    level.unit= 1;
  level.space= unit_at(weight, level.unit);
  level.code= level.unit == 1 ? Code::BYTE : level.space < 0x100 || level.unit == 3 ? Code::SMALL
                                                                                     : Code::PAIR;
  level.pads= pads;
  return level;
}

/* The position of the next byte of a key, in a buffer with UNIT_BYTES_MAX bytes for every unit and for the end. */
using Out= uchar *&;

/* A run of spaces: a space, the kind of what follows it, and its length. */
static const size_t UNIT_BYTES_MAX= 3 + 1 + 3;

static inline void put(Out out, uint32 byte) { *out++= (uchar) byte; }

/* Appends a unit: bytes as they are (none is 0), small numbers in one byte, others in two. */
static inline void put_unit(Out out, Code code, uint32 n)
{
  switch (code)
  {
  case Code::BYTE:
    if (n < 0xfe)
      return put(out, n + 1);
    put(out, 0xff);
    return put(out, n - 0xfd);
  case Code::SMALL:
    if (n < 0xde)
      return put(out, n + 1);
    n-= 0xde;
    if (n < 14 * 255)
    {
      put(out, 0xdf + n / 255);
      return put(out, n % 255 + 1);
    }
    n-= 14 * 255;
    put(out, 0xed + n / (255 * 255));
    put(out, n / 255 % 255 + 1);
    return put(out, n % 255 + 1);
  case Code::PAIR:
    if (n < 254 * 255)
    {
      put(out, n / 255 + 1);
      return put(out, n % 255 + 1);
    }
    n-= 254 * 255;
    put(out, 0xff);
    put(out, n / 255 + 1);
    put(out, n % 255 + 1);
  }
}

/* The length of a run of spaces, rising or falling. */
static void put_run(Out out, size_t run, bool falling)
{
  const uint32 n= (uint32) MY_MIN(run, 0xfeff);
  if (falling && n < 0xee)
    return put(out, 0xff - n);
  if (!falling && n < 0xee)
    return put(out, n);
  const uint32 shown= falling ? 0xfeff - n : n;
  put(out, falling ? 0x10 : 0xee);
  put(out, shown / 255 + 1);
  put(out, shown % 255 + 1);
}

template <uint UNIT, Code CODE>
static void put_units(Out out, const Level &level, const uchar *weights, size_t units)
{
  auto at= [&](size_t i) { return unit_at(weights + i * UNIT, UNIT); };
  if (!level.pads)
  {
    for (size_t i= 0; i < units; i++)
      put_unit(out, CODE, at(i));
    return;
  }
  size_t end= units;
  while (end > 0 && at(end - 1) == level.space)
    end--;
  size_t i= 0;
  if (CODE == Code::BYTE)
    /* Up to the first space this fast path is the rule. */
    for (; i < end && weights[i] != level.space && weights[i] < 0xfe; i++)
      put(out, weights[i] + 1);
  while (i < end)
  {
    size_t next= i;
    while (at(next) == level.space)
      next++;
    if (next > i)
    {
      const bool above= at(next) > level.space;
      put_unit(out, CODE, level.space);
      put(out, above ? 3 : 1);
      put_run(out, next - i, above);
    }
    put_unit(out, CODE, at(next));
    i= next + 1;
  }
  put_unit(out, CODE, level.space);
  put(out, 2);
}

static void put_level(Out out, const Level &level, const uchar *weights, size_t len)
{
  const size_t units= len / level.unit;
  if (level.unit == 1)
    put_units<1, Code::BYTE>(out, level, weights, units);
  else if (level.unit == 3)
    put_units<3, Code::SMALL>(out, level, weights, units);
  else if (level.code == Code::SMALL)
    put_units<2, Code::SMALL>(out, level, weights, units);
  else
    put_units<2, Code::PAIR>(out, level, weights, units);
}

bool collation_has_weights(const CHARSET_INFO *cs)
{
  /* Encoded file names, which no column uses. */
  return strcmp(cs->coll_name.str, "filename");
}

/* A collation and its levels, as first determined. */
struct Known
{
  uint16_t number= 0;
  CHARSET_INFO *cs= nullptr;
  bool pads= false;
  std::vector<Level> levels;

  bool find(uint16_t collation)
  {
    CHARSET_INFO *found= get_charset(collation, MYF(0));
    if (!found)
      return false;
    /* The entry stays unknown until the last level is done. */
    cs= nullptr;
    pads= !(found->state & MY_CS_NOPAD);
    levels.clear();
    uint left= found->levels_for_order ? found->levels_for_order : 1;
    const bool multi= left > 1;
    for (uint level= 0; left; level++, left>>= 1)
      if (left & 1)
        /* If there are several levels, only the first distinguishes strings by trailing spaces. */
        levels.push_back(level_of(found, level, multi, pads || !levels.empty()));
    cs= found;
    number= collation;
    return true;
  }
};

/* A buffer of at least this many bytes that is kept between calls. */
static uchar *at_least(std::vector<uchar> *room, size_t bytes)
{
  if (room->size() < bytes)
    room->resize(bytes);
  return room->data();
}

bool collation_weights(uint16_t collation, uint32_t chars, const uchar *value, size_t len,
                       std::string *out)
{
  static thread_local Known known;
  static thread_local std::vector<uchar> weights_room, key_room;
  if ((known.number != collation || !known.cs) && !known.find(collation))
    return false;
  CHARSET_INFO *cs= known.cs;
  if (chars)
    len= MY_MIN(len, cs->charpos(value, value + len, chars));
  if (is_czech(cs))
    len= cs->lengthsp((const char *) value, len);
  /* The server's own estimate is too low for characters of many weights, which give 36 bytes from two. */
  const size_t room= MY_MAX(cs->strnxfrmlen(len + cs->mbmaxlen) * 2, (len + 8) * 18);
  uchar *weights= at_least(&weights_room, room);
  if (is_czech(cs))
  {
    const size_t n= cs->strnxfrm(weights, room, (uint) room, value, len, 0);
    uchar *const key= at_least(&key_room, (n + 1) * UNIT_BYTES_MAX), *end= key;
    for (size_t i= 0; i < n; i++)
      put_unit(end, Code::BYTE, weights[i]);
    out->append((const char *) key, end - key);
    return true;
  }
  bool first= true;
  for (const Level &level : known.levels)
  {
    size_t n= is_big5(cs) ? big5_weights(cs, weights, value, len)
                          : cs->strnxfrm(weights, room, (uint) room, value, len, level.flags);
    if (ends_at_zero(cs))
      n= strnlen((const char *) weights, n);
    uchar *const key= at_least(&key_room, (n / level.unit + 1) * UNIT_BYTES_MAX), *end= key;
    put_level(end, level, weights, n);
    /* Another level follows. */
    if (first && !known.pads && known.levels.size() > 1)
      put(end, 0);
    first= false;
    out->append((const char *) key, end - key);
  }
  return true;
}

/* The engine calls these functions: they throw nothing. */
static int64_t ek_weights(uint16_t collation, uint32_t chars, ek_bytes value, uint8_t *out,
                          size_t room) noexcept
try
{
  static thread_local std::string weights;
  weights.clear();
  if (!collation_weights(collation, chars, value.ptr, value.len, &weights))
    return -1;
  if (weights.size() <= room)
    memcpy(out, weights.data(), weights.size());
  return (int64_t) weights.size();
}
catch (const std::bad_alloc &)
{
  return -2;
}

static uint64_t ek_bytes_max(uint16_t collation, uint32_t chars, uint32_t bytes)
{
  CHARSET_INFO *cs= get_charset(collation, MYF(0));
  if (!cs)
    return UINT64_MAX;
  uint64_t count= bytes / cs->mbmaxlen;
  if (chars)
    count= MY_MIN(chars, bytes / cs->mbminlen);
  /* Units of a character, three bytes each, or the size of the character with the most units. */
  const uint multiply= MY_MAX(cs->strxfrm_multiply, 1);
  const uint per_char= is_czech(cs) ? 2 * multiply : multiply >= 8 ? CHARACTER_BYTES_MAX
                                    : 3 * MY_MAX(multiply, cs->mbmaxlen);
  uint levels= 0;
  for (uint l= cs->levels_for_order ? cs->levels_for_order : 1; l; l>>= 1)
    levels+= l & 1;
  return levels * (count * per_char + 8) + (is_czech(cs) ? 32 : 0);
}

/* A checksum over the weights of every character, alone and after an 'a': enough to notice new tables. */
static int64_t ek_checksum(uint16_t collation) noexcept
try
{
  static std::atomic<int64_t> known[MY_ALL_CHARSETS_SIZE];
  const uint number= collation;
  if (number >= MY_ALL_CHARSETS_SIZE)
    return -1;
  int64_t sum= known[number].load();
  if (sum)
    return sum;
  CHARSET_INFO *cs= get_charset(number, MYF(0));
  if (!cs)
    return -1;
  uint32 crc= 1;
  std::string weights;
  for (my_wc_t c= 1; c < 0x10000; c++)
  {
    uchar text[16];
    const int first= cs->wc_mb('a', text, text + sizeof text);
    const int len= first > 0 ? cs->wc_mb(c, text + first, text + sizeof text) : 0;
    if (len <= 0)
      continue;
    weights.clear();
    collation_weights(number, 0, text, first + len, &weights);
    crc= my_crc32c(crc, weights.data(), weights.size());
  }
  sum= crc ? crc : 1;
  known[number]= sum;
  return sum;
}
catch (const std::bad_alloc &)
{
  return -1;
}

const ek_collations evenkeel_collations= {ek_weights, ek_bytes_max, ek_checksum};
