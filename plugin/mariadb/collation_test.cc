/* A function for tests, `evenkeel_test_collations(seed, pairs)`: for every collation, compares the order of keys of
   random strings with the server's own comparison. */
#include "collation.h"
#include <random>
#include <vector>

namespace
{
typedef std::mt19937_64 Random;

/* Characters that some collations treat specially. */
const my_wc_t SPECIAL[]= {
    ' ', ' ', ' ', 0x00, 0x01, 0x09, 0x0a, 0x1f, 'a', 'A', 'b', 'c', 'h', 'C', 'H', 'l', 'L', 'd',
    'z', 'Z', 's', 'S', 'n', 'y', 'j', 'i', 'I', 'e', 'o', 'u', '0', '9', '-', '.', '!', '~', 0x7f,
    0xa0, 0xad, 0xc4, 0xe4, 0xdf, 0x1e9e, 0xe1, 0xc1, 0xf1, 0x10c, 0x10d, 0x130, 0x131, 0x132,
    0x133, 0x152, 0x153, 0x301, 0x308, 0x345, 0x391, 0x3b1, 0x430, 0x410, 0x5d0, 0x627, 0xe01,
    0xe40, 0xe48, 0xe2a, 0x1100, 0xac00, 0x2002, 0x200b, 0x20ac, 0x3000, 0x3042, 0x30a2, 0x304b,
    0x3099, 0x30fc, 0x4e00, 0x9fa5, 0xff21, 0xff71, 0xfdfa, 0xfffd, 0xffff, 0x1f600, 0x10400,
    0x10428, 0x20000, 0x10ffff};

std::string character(CHARSET_INFO *cs, Random &random)
{
  uchar bytes[16];
  for (;;)
  {
    my_wc_t c= SPECIAL[random() % array_elements(SPECIAL)];
    switch (random() % 8)
    {
    case 0: c= random() % 0x110000; break;
    case 1: c= random() % 0x3000; break;
    case 2:
      if (cs->mbmaxlen == 1)
        return std::string(1, (char) random());
    }
    const int len= cs->wc_mb(c, bytes, bytes + sizeof bytes);
    if (len > 0)
      return std::string((char *) bytes, len);
  }
}

typedef std::vector<std::string> Characters;

Characters text(CHARSET_INFO *cs, Random &random)
{
  Characters text;
  for (uint n= random() % 9; n > 0; n--)
    text.push_back(character(cs, random));
  return text;
}

/* A string with the same beginning or end, or one that differs in one character. */
Characters variation(const Characters &text, CHARSET_INFO *cs, Random &random)
{
  Characters other= text;
  for (uint n= random() % 3; n > 0; n--)
  {
    const size_t at= random() % (other.size() + 1);
    uchar space[8];
    const int len= cs->wc_mb(' ', space, space + sizeof space);
    switch (random() % 4)
    {
    case 0: other.insert(other.begin() + at, character(cs, random)); break;
    case 1: other.push_back(std::string((char *) space, len)); break;
    case 2: other.insert(other.begin() + at, std::string((char *) space, len)); break;
    default:
      if (at < other.size())
        other[at]= character(cs, random);
    }
  }
  return other;
}

std::string joined(const Characters &text, size_t count)
{
  std::string out;
  for (size_t i= 0; i < count && i < text.size(); i++)
    out+= text[i];
  return out;
}

int sign(int n) { return n < 0 ? -1 : n > 0; }

/* Compares one pair; false if the keys and the server differ. */
bool agree(CHARSET_INFO *cs, const Characters &a, const Characters &b, uint32_t chars,
           uint16_t collation, std::string *shown)
{
  const size_t longest= MY_MAX(a.size(), b.size());
  const size_t count= chars ? MY_MIN(chars, longest) : longest;
  const std::string x= joined(a, count), y= joined(b, count);
  const std::string all_x= joined(a, a.size()), all_y= joined(b, b.size());
  const int want= sign(cs->coll->strnncollsp(cs, (const uchar *) x.data(), x.size(),
                                            (const uchar *) y.data(), y.size()));
  std::string key_x, key_y;
  collation_weights(collation, chars, (const uchar *) all_x.data(), all_x.size(), &key_x);
  collation_weights(collation, chars, (const uchar *) all_y.data(), all_y.size(), &key_y);
  const int have= sign(key_x.compare(key_y));
  const size_t bytes= MY_MAX(all_x.size(), all_y.size());
  const uint32_t room= (uint32_t)(MY_MAX(longest * cs->mbmaxlen, bytes));
  const bool fits= MY_MAX(key_x.size(), key_y.size()) <=
                   evenkeel_collations.bytes_max(collation, chars, room);
  if (want == have && fits)
    return true;
  const auto hex= [](const std::string &s)
  {
    char two[3];
    std::string out;
    for (uchar c : s)
    {
      snprintf(two, sizeof two, "%02X", c);
      out+= two;
    }
    return out;
  };
  *shown= hex(x) + (want < 0 ? " < " : want > 0 ? " > " : " = ") + hex(y) + ", keys " + hex(key_x) +
          (have < 0 ? " < " : have > 0 ? " > " : " = ") + hex(key_y) + (fits ? "" : ", too long");
  return false;
}
}

ulonglong collation_self_test(ulonglong seed, uint pairs, std::string *report)
{
  Random random(seed);
  uint collations= 0, differing= 0;
  ulonglong compared= 0;
  std::string lines;
  for (uint number= 1; number < MY_ALL_CHARSETS_SIZE; number++)
  {
    CHARSET_INFO *cs= get_charset(number, MYF(0));
    if (!cs || cs == &my_charset_bin || !collation_has_weights(cs))
      continue;
    collations++;
    uint wrong= 0;
    std::string shown, first;
    const auto compare= [&](const Characters &a, const Characters &b, uint32_t chars)
    {
      compared++;
      if (!agree(cs, a, b, chars, (uint16_t) number, &shown) && wrong++ == 0)
        first= shown;
    };
    /* Long strings of one character: characters of many weights take the most room. */
    for (my_wc_t c : SPECIAL)
    {
      uchar bytes[16];
      const int len= cs->wc_mb(c, bytes, bytes + sizeof bytes);
      if (len <= 0)
        continue;
      Characters a(60, std::string((char *) bytes, len)), b= a;
      b.back()= character(cs, random);
      compare(a, b, 0);
    }
    for (uint i= 0; i < pairs; i++)
    {
      const Characters a= text(cs, random), b= random() % 4 ? variation(a, cs, random)
                                                              : text(cs, random);
      compare(a, b, random() % 2 ? 0 : 1 + random() % 6);
    }
    if (wrong)
    {
      differing++;
      lines+= std::string("\n") + cs->coll_name.str + ": " + std::to_string(wrong) + " of " +
              std::to_string(pairs) + ": " + first;
    }
  }
  *report= std::to_string(collations) + " collations, " + std::to_string(compared) + " pairs, " +
           std::to_string(differing) + " differ" + lines;
  return compared;
}

extern "C" my_bool evenkeel_test_collations_init(UDF_INIT *init, UDF_ARGS *args, char *message)
{
  if (args->arg_count != 2)
  {
    strcpy(message, "evenkeel_test_collations(seed, pairs)");
    return true;
  }
  args->arg_type[0]= args->arg_type[1]= INT_RESULT;
  init->max_length= 1 << 20;
  init->ptr= (char *) new std::string;
  return false;
}

extern "C" void evenkeel_test_collations_deinit(UDF_INIT *init)
{
  delete (std::string *) init->ptr;
}

extern "C" char *evenkeel_test_collations(UDF_INIT *init, UDF_ARGS *args, char *,
                                          unsigned long *length, char *, char *)
{
  std::string *report= (std::string *) init->ptr;
  const auto number= [&](uint i) { return args->args[i] ? *(longlong *) args->args[i] : 1; };
  collation_self_test((ulonglong) number(0), (uint) number(1), report);
  *length= report->size();
  return &(*report)[0];
}
