/* A build of indexes by ALTER TABLE. */
#ifndef EVENKEEL_INDEX_BUILD_H
#define EVENKEEL_INDEX_BUILD_H
#include "engine.h"
#include "alter.h"
#include <atomic>
#include <string>
#include <thread>
#include <vector>

/* A build of indexes, of all partitions of a table as one: in a thread of its own, beside which the
   statement's tells others how far it is, or, where there is next to nothing to read, in that one. */
class Build
{
public:
  explicit Build(THD *thd);
  ~Build();

  /* A table that gets the indexes, and what they are made of there. */
  struct Of_table
  {
    std::string name;
    std::vector<std::vector<ek_part>> parts;
  };
  std::vector<Of_table> tables;
  std::vector<std::string> names;
  std::vector<uint8_t> unique;

  /* It begins, all being said: until now nobody else knew of it. */
  void start(THD *thd);
  /* Waits until it is over, or in `phase` or a later one: true if it failed. What it waits for are
     events: the build's phases, and KILL, which cancels it (`cancel_builds`). */
  bool wait(THD *thd, int32_t phase);
  /* It is cancelled, or over: true if its indexes are there. */
  bool stop();
  void cancel() { ek_build_cancel(m_build); }
  /* What others see of it. */
  Build_figures figures() const;
  /* The table and the clustered key of a row that has the unique key of another; false if none is
     known. */
  bool duplicate(std::string *table, std::string *key) const;

  /* Once it has failed. */
  ek_error error;
  const my_thread_id thread_id;

private:
  void run();
  uint64_t rows() const;

  ek_build *m_build;
  std::thread m_thread;
  std::atomic<bool> m_done{false};
  /* Once it is done. */
  bool m_failed= false;
};
#endif
