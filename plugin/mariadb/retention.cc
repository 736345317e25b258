/* RETAIN of chunked tables: a thread looks at all tables at an interval and drops the chunks that hold only rows older
   than RETAIN. The engine has no clock of the day, so the server's is read here: for DATETIME and DATE in the server's
   time zone, for TIMESTAMP and numbers in UTC. Nobody waits for it, and it waits for nobody: a table whose definition is
   just being changed, and a chunk in which a transaction has changed or locked rows, are left for the next time. Each
   server applies RETAIN itself, so nothing of it is in the binlog. */
#include "retention.h"
#include "chunks.h"
#include "engine.h"
#include "entry.h"
#include "errors.h"
#include "fault_injection.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>
#include <tztime.h>

unsigned retention_interval= 60;

static std::mutex retention_mutex;
static std::condition_variable retention_ends;
static std::thread retention_thread;
/* Guarded by the mutex; the engine asks for it without. */
static std::atomic<bool> is_ending{false};
static std::atomic<unsigned long long> drops{0};

unsigned long long retention_drops() { return drops; }

static void add_name(void *to, ek_bytes name)
{
  static_cast<std::vector<std::string> *>(to)->emplace_back((const char *) name.ptr, name.len);
}

static void ignore_kept(void *, uint64_t, uint64_t) {}

static int32_t is_cancelled(void *) { return is_ending; }

/* Drops what is older than RETAIN in one table. */
static void expire(const std::string &table)
{
  uint64_t kept= 0;
  const int unit= ek_chunk_unit(evenkeel_db, ek_text(table));
  if (unit < 0 || !ek_retain(evenkeel_db, ek_text(table), &kept) || plant("RetainForgotten"))
    return;
  const int64_t now= chunk_clock(unit, time(nullptr));
  if (kept > (uint64_t) now)
    return;
  ek_error error;
  const ek_schema_wait wait= {nullptr, 0, callback<is_cancelled>, nullptr, 0};
  const int64_t dropped= calling_back([&] {
    return ek_drop_chunks(evenkeel_db, ek_text(table), now - (int64_t) kept, &wait, nullptr, callback<ignore_kept>, &error);
  });
  if (dropped > 0)
  {
    drops+= dropped;
    sql_print_information("EVENKEEL: RETAIN has dropped %lld chunks of table %s", (long long) dropped, table.c_str());
  }
  else if (dropped < 0 && error.code != CODE_TableMissing && error.code != CODE_TableBusy && error.kind != EK_CANCELLED)
    report("RETAIN", error);
}

static void expire_all()
{
  std::vector<std::string> tables;
  calling_back([&] { ek_tables(evenkeel_db, &tables, callback<add_name>); });
  for (const std::string &table : tables)
    if (!is_ending)
      expire(table);
}

static void run()
{
  my_thread_init();
  std::unique_lock<std::mutex> guard(retention_mutex);
  unsigned waited= 0;
  while (!is_ending)
  {
    retention_ends.wait_for(guard, std::chrono::seconds(1));
    if (is_ending || !retention_interval || ++waited < retention_interval)
      continue;
    waited= 0;
    guard.unlock();
    guarded(0, [] {
      expire_all();
      return 0;
    });
    guard.lock();
  }
  guard.unlock();
  my_thread_end();
}

void start_retention()
{
  std::lock_guard<std::mutex> guard(retention_mutex);
  is_ending= false;
  try
  {
    retention_thread= std::thread(run);
  }
  catch (const std::system_error &e)
  {
    sql_print_error("EVENKEEL: no thread for RETAIN, old chunks stay: %s", e.what());
  }
}

void stop_retention()
{
  {
    std::lock_guard<std::mutex> guard(retention_mutex);
    is_ending= true;
  }
  retention_ends.notify_all();
  if (retention_thread.joinable())
    retention_thread.join();
}
