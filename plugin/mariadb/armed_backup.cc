/* Backups that a tool of the server ends: SET GLOBAL evenkeel_backup_armed_dir begins a copy in a thread of its own, which
   follows the log. BACKUP STAGE START waits until little is left to copy. BACKUP STAGE END fixes the end of the copy while
   commits are blocked, so that both engines and the binlog are copied as of one moment, and lets them go on at once; the
   rest (files of indexes that no longer change, syncs) follows behind it. */
#include "backup_run.h"
#include "entry.h"
#include "errors.h"
#include "transaction.h"
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

/* BACKUP STAGE START waits until no more than this is left. */
static constexpr uint64_t NEAR_BYTES= 64 << 20;
/* The time for which BACKUP STAGE END keeps commits blocked, at most. */
static constexpr std::chrono::seconds END_MAX(5);
static constexpr std::chrono::milliseconds LOOKS_EVERY(20), LOOKS_AT_END_EVERY(1);

using Clock= std::chrono::steady_clock;

static int64_t ms_since(Clock::time_point begun)
{
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun).count();
}

/* One arming, one backup. */
class Armed_backup
{
public:
  Armed_backup(const char *path, const char *base) : backup(0, path, base, ek_backup_new_armed()) {}
  ~Armed_backup() { join(); }

  void start()
  {
    m_thread= std::thread([this] { run(); });
  }
  void join()
  {
    std::lock_guard<std::mutex> guard(m_joining);
    if (m_thread.joinable())
      m_thread.join();
  }
  /* It is not wanted any more, for this reason; the first one stays. */
  void refuse(const char *why)
  {
    {
      std::lock_guard<std::mutex> guard(m_mutex);
      if (m_why.empty())
        m_why= why;
    }
    backup.cancel();
  }
  bool end(THD *thd, const std::string &binlog);
  bool is_ending() const { return m_ending; }
  bool is_over() const { return m_over; }
  bool has_failed() const { return m_failed; }
  std::string outcome()
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    return m_outcome;
  }

  Backup backup;
  /* Of a backup that could not begin. */
  ek_error error;

private:
  void run() noexcept;

  std::thread m_thread;
  std::mutex m_joining, m_mutex;
  std::string m_why, m_outcome;
  /* Where the binlog is at the end, and how long commits were blocked for that. */
  std::string m_binlog;
  std::atomic<int64_t> m_blocked_ms{-1};
  std::atomic<bool> m_ending{false}, m_failed{false}, m_over{false};
};

void Armed_backup::run() noexcept
{
  ek_backup_report report;
  const bool failed= backup.take(&report, &error);
  /* A copy that is complete has an end, for which `end` waited. */
  while (!failed && m_blocked_ms < 0)
    std::this_thread::sleep_for(LOOKS_AT_END_EVERY);
  std::string text;
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    if (failed)
      text= m_why.empty() ? error.text : m_why;
    else
      text= outcome_of(backup, report) + (m_binlog.empty() ? "" : ", binlog " + m_binlog) + ", commits waited " +
            std::to_string(m_blocked_ms) + " ms for its end";
    m_outcome= text;
  }
  note_backup(backup, text, failed);
  backup.leave();
  m_failed= failed;
  m_over= true;
}

/* Fixes the end, with commits blocked; false if that did not succeed in its time. */
bool Armed_backup::end(THD *thd, const std::string &binlog)
{
  const Clock::time_point begun= Clock::now();
  {
    std::lock_guard<std::mutex> guard(m_mutex);
    m_binlog= binlog;
  }
  m_ending= true;
  backup.end(binlog);
  while (!backup.progress().end && !m_over)
  {
    const bool killed= thd_kill_level(thd);
    /* From here on the copy cannot be fixed any more, or was just now. */
    if ((killed || Clock::now() - begun >= END_MAX) && backup.give_up())
    {
      refuse(killed ? "BACKUP STAGE END was killed" : "its end took more than 5 s, for which commits were blocked");
      return false;
    }
    std::this_thread::sleep_for(LOOKS_AT_END_EVERY);
  }
  m_blocked_ms= ms_since(begun);
  return backup.progress().end != 0;
}

static std::mutex armed_mutex;
static std::shared_ptr<Armed_backup> armed;
static bool may_arm;

static std::shared_ptr<Armed_backup> armed_now()
{
  std::lock_guard<std::mutex> guard(armed_mutex);
  return armed;
}

/* Waits until `ready`; false if the statement was killed. */
template <class Ready> static bool wait_until(THD *thd, const char *what, Ready ready)
{
  const char *before= thd_proc_info(thd, what);
  bool killed= false;
  while (!ready() && !(killed= thd_kill_level(thd)))
    std::this_thread::sleep_for(LOOKS_EVERY);
  thd_proc_info(thd, before);
  return !killed;
}

/* The outcome of the backup that was armed; an error if it is not complete. */
static bool disarm(THD *thd)
{
  const std::shared_ptr<Armed_backup> old= armed_now();
  if (!old)
    return false;
  if (!old->is_over() && !old->is_ending())
    old->refuse("it was disarmed before a BACKUP STAGE END");
  if (!wait_until(thd, "waiting for the end of the backup of EVENKEEL tables", [&] { return old->is_over(); }))
    return true;
  old->join();
  {
    std::lock_guard<std::mutex> guard(armed_mutex);
    if (armed == old)
      armed.reset();
  }
  if (old->has_failed())
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: the backup to %s failed: %s", MYF(0), old->backup.path.c_str(),
                    old->outcome().c_str());
  return old->has_failed();
}

/* Puts it where the hooks find it; false if another one is there. */
static bool is_armed_first(const std::shared_ptr<Armed_backup> &next)
{
  std::lock_guard<std::mutex> guard(armed_mutex);
  if (!may_arm || (armed && !armed->is_over()))
    return false;
  armed= next;
  return true;
}

bool arm_backup(THD *thd, const char *path, const char *base)
{
  if (!*path)
    return disarm(thd);
  if (!is_backup_path("evenkeel_backup_armed_dir", path))
    return true;
  const Database_use use;
  if (!use)
  {
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: the database is not open", MYF(0));
    return true;
  }
  const std::shared_ptr<Armed_backup> next= std::make_shared<Armed_backup>(path, base);
  if (!is_armed_first(next))
  {
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: a backup is armed already: SET GLOBAL evenkeel_backup_armed_dir = '' first",
                    MYF(0));
    return true;
  }
  try
  {
    next->start();
  }
  catch (const std::system_error &e)
  {
    std::lock_guard<std::mutex> guard(armed_mutex);
    armed.reset();
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: no thread for the backup: %s", MYF(0), e.what());
    return true;
  }
  const bool begun= wait_until(thd, "beginning the backup of EVENKEEL tables",
                               [&] { return next->is_over() || next->backup.progress().phase != EK_BACKUP_BEGINS; });
  if (!begun)
    next->refuse("the statement that armed it was killed");
  else if (!next->is_over() || !next->has_failed())
    return false;
  next->join();
  {
    std::lock_guard<std::mutex> guard(armed_mutex);
    armed.reset();
  }
  if (begun)
    raise_error(thd, next->error);
  return true;
}

void allow_arming()
{
  std::lock_guard<std::mutex> guard(armed_mutex);
  may_arm= true;
}

void disarm_backup()
{
  {
    std::lock_guard<std::mutex> guard(armed_mutex);
    may_arm= false;
  }
  if (const std::shared_ptr<Armed_backup> old= armed_now())
  {
    if (!old->is_over())
      old->refuse("the server was stopped");
    old->join();
  }
}

static void warn(const std::string &text)
{
  sql_print_warning("EVENKEEL: %s", text.c_str());
  if (THD *thd= current_thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "EVENKEEL: %s", text.c_str());
}

void evenkeel_prepare_for_backup()
{
  const std::shared_ptr<Armed_backup> of= armed_now();
  /* One that is ending belongs to the backup of the server that has ended it. */
  if (!of || of->is_over() || of->is_ending())
    return warn("tables with ENGINE=EVENKEEL are not in a backup made of the server's files: begin their copy first "
                "with SET GLOBAL evenkeel_backup_armed_dir='/new/directory', copy them with evenkeel_backup_dir, or "
                "dump them (mariadb-dump)");
  THD *thd= current_thd;
  if (!thd)
    return;
  of->backup.hurry();
  wait_until(thd, "waiting for the copy of EVENKEEL tables",
             [&] { return of->is_over() || of->backup.progress().left <= NEAR_BYTES; });
  if (of->is_over())
    warn("tables with ENGINE=EVENKEEL are not in this backup: " + of->outcome());
}

/* The binlog's position, while commits are blocked. */
static std::string binlog_position()
{
  LOG_INFO at;
  if (!mysql_bin_log.is_open() || mysql_bin_log.get_current_log(&at))
    return "";
  const char *name= at.log_file_name + dirname_length(at.log_file_name);
  return std::string(name) + " " + std::to_string(at.pos);
}

void evenkeel_end_backup()
{
  const std::shared_ptr<Armed_backup> of= armed_now();
  if (!of || of->is_over() || of->is_ending())
    return;
  /* The stage is that of the end also if none came between, and the lock is there also if the connection was lost. */
  THD *thd= current_thd;
  const bool blocks= thd && thd->current_backup_stage == BACKUP_END &&
                     thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT);
  if (!blocks)
  {
    of->refuse("the server's backup ended without BACKUP STAGE BLOCK_COMMIT and BACKUP STAGE END");
    warn("the backup to " + of->backup.path + " failed: commits were not blocked at its end");
  }
  else if (!of->end(thd, binlog_position()))
    warn("the backup to " + of->backup.path + " failed; evenkeel_backup_last says why");
}
