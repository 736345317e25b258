/* An index build by ALTER TABLE, alone or after the rows that it has copied, or by REPAIR TABLE; or the look at the
   rows of a table that gets foreign keys. */
#ifndef EVENKEEL_INDEX_BUILD_H
#define EVENKEEL_INDEX_BUILD_H
#include "engine.h"
#include "alter.h"
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/* An index build for all partitions of a table as one. It runs in a thread of its own while the statement's thread
   reports its progress, or in the statement's thread if there are few rows. */
class Build
{
public:
  explicit Build(THD *thd);
  ~Build();

  /* A table that gets indexes, and their definitions there. */
  struct Of_table
  {
    std::string name;
    std::vector<std::vector<ek_part>> parts;
  };
  std::vector<Of_table> tables;
  std::vector<std::string> names;
  std::vector<uint8_t> unique;

  /* A repair of the table, which builds indexes if need be. */
  struct Repair
  {
    bool gives_up_rows;
    /* The stage of its check (EK_CHECK_*) and the millionths of it that are done, while no index is built. */
    std::atomic<int32_t> stage{EK_CHECK_PAGES};
    std::atomic<uint32_t> stage_ppm{0};
    /* Set once it has ended: kinds of lines (EK_REPAIR_*) and lines, and how many tell of damage that is left. */
    std::vector<std::pair<int32_t, std::string>> lines;
    int64_t problems= 0;
  };
  std::unique_ptr<Repair> repair;

  /* Foreign keys that the table gets. The build looks at the rows that are there, if it `validates` them. */
  struct Foreign_keys
  {
    const std::vector<ek_foreign> *keys;
    bool validates;
    /* The change of the table makes them permanent. */
    bool are_provisional;
  };
  std::unique_ptr<Foreign_keys> foreign;

  /* The copy by which rows were put into the table, which has no such indexes yet; freed with the build. */
  ek_copy *copy= nullptr;
  /* True, with `error` set, if rows cannot be copied in this way. */
  bool begin_copy(const std::string &table, bool leaves_out);
  /* Rows copied so far, and the total as far as it is known; other threads read both. */
  std::atomic<uint64_t> copied{0};
  uint64_t to_copy= 0;

  /* Makes the build visible to others from now on, as rows are copied. */
  void show();
  /* Begins the build after its tables and indexes are set. If no rows were copied, no other thread has seen it
     before. */
  void start(THD *thd);
  /* Waits until the build has ended or is in `phase` or a later one: true if it failed. The events are the phases of
     the build and KILL, which cancels it (`cancel_builds`). */
  bool wait(THD *thd, int32_t phase);
  /* Cancels the build unless it has ended: true if its indexes exist. */
  bool stop();
  void cancel() { ek_build_cancel(m_build); }
  /* The progress that others see. */
  Build_figures figures() const;
  /* The table and the clustered key of a row that has the unique key of another row; false if none is known. */
  bool duplicate(std::string *table, std::string *key) const;

  /* Set once the build has failed. */
  ek_error error;
  const my_thread_id thread_id;

private:
  void run() noexcept;
  void work();
  bool run_repair();
  bool add_foreign_keys();
  const char *phase_name(int32_t phase) const;
  uint64_t rows() const;

  ek_build *m_build;
  std::thread m_thread;
  std::atomic<bool> m_done{false};
  /* Set once the build is done. */
  bool m_failed= false;
  /* An exception of the build's thread, for the statement's thread. */
  std::exception_ptr m_thrown;
};
#endif
