/* Index builds that are under way, copies of tables that end in one, and repairs of tables. */
#include "index_build.h"
#include "owned.h"
#include "entry.h"
#include "settings.h"
#include "transaction.h"
#include <list>
#include <mutex>
#include <system_error>

/* By the engine's numbers (EK_BUILD_IDLE ...). */
static const char *const phases[]= {"not begun", "waiting for transactions",
  "reading rows for new indexes", "writing new indexes", "proving that unique keys are unique",
  "done"};

/* By the numbers of a check's stages (EK_CHECK_PAGES ...). */
static const char *const check_stages[]= {"checking pages", "reading rows", "checking indexes"};

/* Few rows are read faster than a new thread gets a core of a busy machine. */
static const uint64_t ROWS_HERE_MAX= 1000;
/* Interval at which the progress that others see is updated. */
static const uint64_t REPORT_MS= 100;

static std::mutex builds_mutex;
static std::list<Build *> builds;

Build::Build(THD *thd) : thread_id(thd_get_thread_id(thd))
{
  m_build= ek_build_new(lock_wait_ms(thd));
  error.kind= EK_OK;
  error.text[0]= error.index[0]= 0;
}

Build::~Build()
{
  {
    std::lock_guard<std::mutex> guard(builds_mutex);
    builds.remove(this);
  }
  if (m_thread.joinable())
  {
    cancel();
    m_thread.join();
  }
  if (copy)
    ek_copy_free(copy);
  ek_build_free(m_build);
}

uint64_t Build::rows() const
{
  if (copy)
    return copied;
  uint64_t sum= 0;
  for (const Of_table &table : tables)
  {
    ek_error ignored;
    const Owned_table named(ek_table_new(ek_text(table.name)));
    const int64_t rows= ek_rows(evenkeel_db, named.get(), nullptr, &ignored);
    sum+= rows < 0 ? ROWS_HERE_MAX + 1 : (uint64_t) rows;
  }
  return sum;
}

bool Build::begin_copy(const std::string &table, bool leaves_out)
{
  copy= ek_copy_begin(evenkeel_db, ek_text(table), leaves_out, m_build, &error);
  return !copy;
}

void Build::show()
{
  std::lock_guard<std::mutex> guard(builds_mutex);
  builds.push_back(this);
}

void Build::start(THD *thd)
{
  if (!copy)
    show();
  if (rows() <= ROWS_HERE_MAX)
  {
    /* A KILL from now on finds the build (`cancel_builds`). */
    if (thd_kill_level(thd))
      cancel();
    thd_proc_info(thd, phases[EK_BUILD_WAITING]);
    return run();
  }
  try
  {
    m_thread= std::thread([this] { run(); });
  }
  catch (const std::system_error &e)
  {
    make_error(&error, CODE_ThreadSpawn, EK_IO, "no thread for the build of an index: %s", e.what());
    m_failed= m_done= true;
  }
}

void Build::run() noexcept
{
  try
  {
    work();
  }
  catch (...)
  {
    m_thrown= std::current_exception();
    m_failed= true;
  }
  m_done= true;
}

void Build::work()
{
  if (copy)
  {
    m_failed= ek_copy_finish(copy, &error) != 0;
    return;
  }
  if (repair)
  {
    m_failed= run_repair();
    return;
  }
  if (foreign)
  {
    m_failed= add_foreign_keys();
    return;
  }
  std::vector<std::vector<ek_index>> indexes;
  std::vector<ek_new_indexes> given;
  for (const Of_table &table : tables)
  {
    indexes.emplace_back();
    for (size_t i= 0; i < names.size(); i++)
      indexes.back().push_back({ek_text(names[i]), table.parts[i].data(), table.parts[i].size(),
                                unique[i]});
    given.push_back({ek_text(table.name), indexes.back().data(), indexes.back().size()});
  }
  m_failed= ek_add_indexes(evenkeel_db, given.data(), given.size(), m_build, &error) != 0;
}

static void keep_line(void *to, int32_t kind, ek_bytes line)
{
  static_cast<Build::Repair *>(to)->lines.emplace_back(kind, std::string((const char *) line.ptr, line.len));
}

static void note_stage(void *to, int32_t stage, uint32_t done_ppm)
{
  Build::Repair *repair= static_cast<Build::Repair *>(to);
  repair->stage.store(stage, std::memory_order_relaxed);
  repair->stage_ppm.store(done_ppm, std::memory_order_relaxed);
}

/* True if the repair has failed, with `error` set. */
bool Build::run_repair()
{
  const ek_repair_calls calls= {repair.get(), callback<keep_line>, callback<note_stage>};
  repair->problems= calling_back([&] {
    return ek_repair_table(evenkeel_db, ek_text(tables[0].name), repair->gives_up_rows, m_build, &calls, &error);
  });
  return repair->problems < 0;
}

/* True if the keys could not be added, with `error` set. */
bool Build::add_foreign_keys()
{
  const std::vector<ek_foreign> &keys= *foreign->keys;
  const auto add= foreign->are_provisional ? ek_prove_foreign_keys : ek_add_foreign_keys;
  return add(evenkeel_db, ek_text(tables[0].name), keys.data(), keys.size(), foreign->validates, m_build, &error) != 0;
}

/* A repair checks the table before it builds. */
const char *Build::phase_name(int32_t phase) const
{
  if (repair && phase == EK_BUILD_IDLE)
    return check_stages[repair->stage.load(std::memory_order_relaxed)];
  return phases[phase];
}

bool Build::wait(THD *thd, int32_t phase)
{
  int32_t now= EK_BUILD_IDLE;
  while (!m_done)
  {
    const int32_t before= now;
    now= ek_build_wait(evenkeel_db, m_build, before, REPORT_MS);
    /* The build has ended, or its thread is about to end. */
    if (now >= EK_BUILD_DONE)
      break;
    if (now >= phase)
      return false;
    if (now != before || repair)
      thd_proc_info(thd, phase_name(now));
    ek_build_figures figures;
    ek_build_progress(m_build, &figures);
    if (repair && now == EK_BUILD_IDLE)
      figures.done_ppm= repair->stage_ppm;
    /* One stage: reading and writing alternate, and the share is that of all the work. */
    thd_progress_report(thd, figures.done_ppm, 1000000);
    if (thd_kill_level(thd))
      cancel();
  }
  if (m_thread.joinable())
    m_thread.join();
  if (m_thrown)
    std::rethrow_exception(m_thrown);
  return m_failed;
}

bool Build::stop()
{
  cancel();
  if (m_thread.joinable())
    m_thread.join();
  return m_done && !m_failed;
}

Build_figures Build::figures() const
{
  Build_figures figures;
  figures.thread_id= thread_id;
  /* For a partition, the name of its table. */
  figures.table= tables[0].name.substr(0, tables[0].name.find("#P#"));
  for (const std::string &name : names)
    figures.indexes+= (figures.indexes.empty() ? "" : ", ") + name;
  ek_build_figures now;
  ek_build_progress(m_build, &now);
  figures.is_copy= copy;
  figures.is_repair= repair != nullptr;
  const bool copies= copy && now.phase == EK_BUILD_IDLE;
  figures.phase= copies ? "copying rows" : phase_name(now.phase);
  figures.rows_done= copies ? (uint64_t) copied : now.rows_done;
  figures.rows_total= copies ? to_copy : now.rows_total;
  figures.done_ppm= repair && now.phase == EK_BUILD_IDLE ? (uint32_t) repair->stage_ppm : now.done_ppm;
  figures.left_s= now.left_s;
  return figures;
}

static void keep_duplicate(void *to, ek_bytes table, ek_bytes key)
{
  auto *strings= static_cast<std::pair<std::string *, std::string *> *>(to);
  strings->first->assign((const char *) table.ptr, table.len);
  strings->second->assign((const char *) key.ptr, key.len);
}

bool Build::duplicate(std::string *table, std::string *key) const
{
  std::pair<std::string *, std::string *> to(table, key);
  calling_back([&] { ek_build_duplicate(m_build, &to, callback<keep_duplicate>); });
  return !key->empty();
}

void each_build(const std::function<void(const Build_figures &)> &each)
{
  std::lock_guard<std::mutex> guard(builds_mutex);
  for (const Build *build : builds)
    each(build->figures());
}

void cancel_builds(my_thread_id thread_id)
{
  std::lock_guard<std::mutex> guard(builds_mutex);
  for (Build *build : builds)
    if (build->thread_id == thread_id)
      build->cancel();
}
