/* When each table was changed last. */
#ifndef EVENKEEL_LAST_CHANGE_H
#define EVENKEEL_LAST_CHANGE_H
#include "engine.h"
#include <atomic>
#include <memory>

/* Seconds since 1970, 0 as long as nobody changed it: of a commit since the server began. It is kept
   in memory only. */
typedef std::shared_ptr<std::atomic<time_t>> Last_change;

/* Of a table that is opened; what was got is given back by `close_last_change`. */
Last_change open_last_change(const std::string &table);
void close_last_change(const std::string &table, Last_change *change);
void rename_last_change(const std::string &from, const std::string &to) noexcept;
/* A table that nobody may have open has changed now. */
void date_last_change(const std::string &table);
void drop_last_change(const std::string &table);
#endif
