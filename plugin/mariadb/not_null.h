/* Columns that an ALTER TABLE makes NOT NULL while others write. */
#ifndef EVENKEEL_NOT_NULL_H
#define EVENKEEL_NOT_NULL_H
#include "engine.h"
#include <atomic>
#include <functional>
#include <string>
#include <vector>

/* Records, while it lives, whether a transaction writes NULL to one of these columns. It begins while no transaction
   uses the table, so every later writer sees it. */
class Null_watch
{
public:
  Null_watch(const std::string &table, const std::vector<uint> &fields,
             const std::vector<std::string> &names);
  ~Null_watch();
  Null_watch(const Null_watch &)= delete;

  const std::string table;
  /* The columns, by their numbers in the definition that the writers have. */
  const std::vector<uint> fields;
  /* What the ALTER calls these columns, for its error. */
  const std::vector<std::string> names;
  /* The place in `fields` of the first column for which a writer showed NULL. */
  static constexpr size_t NOTHING= SIZE_MAX;
  std::atomic<size_t> seen{NOTHING};
};

extern std::atomic<uint> null_watches;
inline bool are_nulls_watched() { return null_watches.load(std::memory_order_acquire) != 0; }
/* Each writer calls this if there are watches; `may_be_null` says whether the new row may have NULL in a field. */
void see_nulls(const std::string &table, const std::function<bool(uint field)> &may_be_null);

enum Nulls { NO_NULL, HAS_NULL, NULLS_KILLED, NULLS_UNKNOWN };
/* The first NULL that is found: in which of the columns, and in which row, counted from 1; without one, the
   number of the row behind the last. */
struct Null_place
{
  size_t column= 0;
  uint64_t row= 1;
};
/* Reads a table for rows that have NULL in one of these columns of the engine, reports its progress and heeds KILL.
   It holds no snapshot for long. `error` says why the answer is unknown. */
Nulls find_nulls(THD *thd, const std::string &table, const std::vector<uint32_t> &columns,
                 Null_place *place, ek_error *error);
#endif
