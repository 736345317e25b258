/* Columns that an ALTER TABLE makes NOT NULL beside those who write. */
#ifndef EVENKEEL_NOT_NULL_H
#define EVENKEEL_NOT_NULL_H
#include "engine.h"
#include <atomic>
#include <functional>
#include <string>
#include <vector>

/* While it lives it is known whether anybody writes NULL to one of these columns. It begins while nobody
   uses the table: whoever writes then sees it. */
class Null_watch
{
public:
  Null_watch(const std::string &table, const std::vector<uint> &fields,
             const std::vector<std::string> &names);
  ~Null_watch();
  Null_watch(const Null_watch &)= delete;

  const std::string table;
  /* By their numbers in the definition that the writers have. */
  const std::vector<uint> fields;
  /* What the ALTER calls these columns, for its error. */
  const std::vector<std::string> names;
  /* The place in `fields` of the first column for which a writer showed NULL. */
  static constexpr size_t NOTHING= SIZE_MAX;
  std::atomic<size_t> seen{NOTHING};
};

extern std::atomic<uint> null_watches;
inline bool are_nulls_watched() { return null_watches.load(std::memory_order_acquire) != 0; }
/* Of each writer, if there are watches: may a row, as it will be, have NULL in a column. */
void see_nulls(const std::string &table, const std::function<bool(uint field)> &may_be_null);

enum Nulls { NO_NULL, HAS_NULL, NULLS_KILLED, NULLS_UNKNOWN };
/* The first NULL that is found: in which of the columns, and in which row, counted from 1; without one, the
   number of the row behind the last. */
struct Null_place
{
  size_t column= 0;
  uint64_t row= 1;
};
/* Reads a table for rows that have NULL in one of these columns of the engine, showing its progress and
   heeding KILL. It keeps no snapshot for long. `error` says why it does not know. */
Nulls find_nulls(THD *thd, const std::string &table, const std::vector<uint32_t> &columns,
                 Null_place *place, ek_error *error);
#endif
