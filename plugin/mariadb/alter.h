/* What others see of ALTER TABLE in place. */
#ifndef EVENKEEL_ALTER_H
#define EVENKEEL_ALTER_H
#include "engine.h"
#include <functional>

struct Build_figures
{
  my_thread_id thread_id;
  /* Rows are copied first. */
  bool is_copy;
  std::string table, indexes, phase;
  uint64_t rows_done, rows_total;
  uint32_t done_ppm;
  /* EK_UNKNOWN_S: nobody knows. */
  uint64_t left_s;
};

/* Builds of indexes, and copies of tables, that are under way. */
void each_build(const std::function<void(const Build_figures &)> &each);

/* KILL: a connection's builds end. */
void cancel_builds(my_thread_id thread_id);

/* An index's name without the mark of one that is being built. */
std::string without_mark(const std::string &index);

/* For the server: 0 if the table is no more what it was when `before` was its version. */
int evenkeel_check_version(handlerton *, const char *path, const LEX_CUSTRING *, ulonglong before);
#endif
