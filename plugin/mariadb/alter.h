/* The parts of ALTER TABLE in place that other files of the plugin see. */
#ifndef EVENKEEL_ALTER_H
#define EVENKEEL_ALTER_H
#include "engine.h"
#include <functional>

struct Build_figures
{
  my_thread_id thread_id;
  /* The statement copies rows first. */
  bool is_copy;
  /* REPAIR TABLE. */
  bool is_repair;
  std::string table, indexes, phase;
  uint64_t rows_done, rows_total;
  uint32_t done_ppm;
  /* Seconds left; EK_UNKNOWN_S if unknown. */
  uint64_t left_s;
};

/* Calls `each` for every index build and table copy that is under way. */
void each_build(const std::function<void(const Build_figures &)> &each);

/* KILL: cancels the builds of a connection. */
void cancel_builds(my_thread_id thread_id);

/* An index's name without the prefix of an index that is being built. */
std::string without_mark(const std::string &index);

/* For the server: 0 if the table has changed since `before` was its version. */
int evenkeel_check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before);
#endif
