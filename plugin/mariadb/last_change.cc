#include "last_change.h"
#include <mutex>
#include <new>
#include <unordered_map>

static std::mutex mutex;
/* The tables that are open or were changed. */
static std::unordered_map<std::string, Last_change> changes;

Last_change open_last_change(const std::string &table)
{
  std::lock_guard<std::mutex> guard(mutex);
  Last_change &change= changes[table];
  if (!change)
    change= std::make_shared<std::atomic<time_t>>(0);
  return change;
}

void close_last_change(const std::string &table, Last_change *change)
{
  std::lock_guard<std::mutex> guard(mutex);
  change->reset();
  const auto known= changes.find(table);
  if (known != changes.end() && known->second.use_count() == 1 && *known->second == 0)
    changes.erase(known);
}

void rename_last_change(const std::string &from, const std::string &to) noexcept
try
{
  std::lock_guard<std::mutex> guard(mutex);
  const auto known= changes.find(from);
  if (known == changes.end())
    return;
  const Last_change change= known->second;
  changes.erase(known);
  changes[to]= change;
}
catch (const std::bad_alloc &)
{
  /* The time of the change is then unknown. */
}

void date_last_change(const std::string &table)
{
  std::lock_guard<std::mutex> guard(mutex);
  Last_change &change= changes[table];
  if (!change)
    change= std::make_shared<std::atomic<time_t>>(0);
  *change= time(nullptr);
}

void drop_last_change(const std::string &table)
{
  std::lock_guard<std::mutex> guard(mutex);
  changes.erase(table);
}
