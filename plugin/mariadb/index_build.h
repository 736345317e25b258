/* A build of indexes by ALTER TABLE, alone or behind the rows that it has copied. */
#ifndef EVENKEEL_INDEX_BUILD_H
#define EVENKEEL_INDEX_BUILD_H
#include "engine.h"
#include "alter.h"
#include <atomic>
#include <exception>
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

  /* Rows were copied into the table before, which has no such indexes yet; freed with the build. */
  ek_copy *copy= nullptr;
  /* True, with `error` said, if rows cannot be copied so. */
  bool begin_copy(const std::string &table, bool leaves_out);
  /* How many, so far and in all as far as is known: others look at it. */
  std::atomic<uint64_t> copied{0};
  uint64_t to_copy= 0;

  /* From now on others see it, as rows are copied. */
  void show();
  /* It begins, all being said: until now nobody else knew of it, if no rows were copied. */
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
  void run() noexcept;
  void work();
  uint64_t rows() const;

  ek_build *m_build;
  std::thread m_thread;
  std::atomic<bool> m_done{false};
  /* Once it is done. */
  bool m_failed= false;
  /* What its thread has thrown: for the statement's. */
  std::exception_ptr m_thrown;
};
#endif
