/* The time of the last change of each table. */
#ifndef EVENKEEL_LAST_CHANGE_H
#define EVENKEEL_LAST_CHANGE_H
#include "engine.h"
#include <atomic>
#include <memory>

/* Seconds since 1970 of the last commit that changed the table since the server began, 0 if there was none. Kept in
   memory only. */
typedef std::shared_ptr<std::atomic<time_t>> Last_change;

/* Returns the time for a table that is opened; `close_last_change` gives it back. */
Last_change open_last_change(const std::string &table);
void close_last_change(const std::string &table, Last_change *change);
void rename_last_change(const std::string &from, const std::string &to) noexcept;
/* Records a change, now, of a table that may not be open. */
void date_last_change(const std::string &table);
void drop_last_change(const std::string &table);
#endif
