/* Backups of our database by `SET GLOBAL evenkeel_backup_dir`. Backups by the server (BACKUP STAGE, which
   mariadb-backup uses) are in armed_backup.cc. */
#include "backup.h"
#include "backup_run.h"
#include "errors.h"
#include "transaction.h"
#include <mysqld.h>
#include <list>
#include <mutex>

/* By the engine's numbers (ek_backup_figures). */
static const char *const phases[]= {"beginning", "copying pages", "copying indexes", "following the log",
                                    "copying the end of the log", "syncing", "done"};

static std::mutex backups_mutex;
static std::string last_outcome;
static const char *last_state= "none";

static std::list<Backup *> backups;

Backup::Backup(my_thread_id of_thread, const char *to, const char *onto, ek_backup *backup)
    : thread_id(of_thread), path(to), base(onto), m_backup(backup)
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  backups.push_back(this);
}

Backup::~Backup()
{
  leave();
  ek_backup_free(m_backup);
}

void Backup::leave()
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  backups.remove(this);
}

/* What the copy of an incremental backup leaves out. */
static std::string since(const Backup &backup)
{
  return backup.base.empty() ? "" : ", changes since " + backup.base;
}

ek_backup_figures Backup::progress() const
{
  ek_backup_figures now;
  ek_backup_progress(m_backup, &now);
  return now;
}

Backup_figures Backup::figures() const
{
  const ek_backup_figures now= progress();
  return {thread_id, path + since(*this), phases[now.phase], now.bytes, now.bytes_expected};
}

void note_backup(const Backup &backup, const std::string &outcome, bool failed)
{
  if (failed)
    sql_print_warning("EVENKEEL: the backup to %s failed: %s", backup.path.c_str(), outcome.c_str());
  else
    sql_print_information("EVENKEEL: backup to %s complete: %s", backup.path.c_str(), outcome.c_str());
  std::lock_guard<std::mutex> guard(backups_mutex);
  last_outcome= backup.path + (failed ? ": failed: " : ": complete: ") + outcome;
  last_state= failed ? "failed" : "complete";
}

std::string outcome_of(const Backup &backup, const ek_backup_report &report)
{
  return std::to_string(report.bytes) + " bytes in " + std::to_string(report.files) + " files, as of log position " +
         std::to_string(report.end) + since(backup);
}

bool is_backup_path(const char *variable, const char *path)
{
  if (!test_if_hard_path(path))
  {
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "EVENKEEL: %s is '%s': name the directory by its full path", MYF(0),
                    variable, path);
    return false;
  }
  char copy[FN_REFLEN];
  strmake(copy, path, sizeof copy - 1);
  if (strlen(path) < sizeof copy && is_secure_file_path(copy))
    return true;
  my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--secure-file-priv");
  return false;
}

bool back_up(THD *thd, const char *path, const char *base)
{
  if (!is_backup_path("evenkeel_backup_dir", path))
    return true;
  const Database_use use;
  if (!use)
  {
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: the database is not open", MYF(0));
    return true;
  }
  /* The server tells an engine of a KILL only if it keeps a record of the connection. */
  trx_of(thd);
  Backup backup(thd_get_thread_id(thd), path, base, ek_backup_new());
  /* A KILL from now on finds the backup (`cancel_backups`). */
  if (thd_kill_level(thd))
    backup.cancel();
  const char *before= thd_proc_info(thd, "copying EVENKEEL tables to a backup");
  ek_backup_report report;
  ek_error error;
  const bool failed= backup.take(&report, &error);
  thd_proc_info(thd, before);
  if (failed)
  {
    note_backup(backup, error.text, true);
    raise_error(thd, error);
    return true;
  }
  note_backup(backup, outcome_of(backup, report), false);
  return false;
}

void each_backup(const std::function<void(const Backup_figures &)> &each)
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  for (const Backup *backup : backups)
    each(backup->figures());
}

void cancel_backups(my_thread_id thread_id)
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  for (const Backup *backup : backups)
    if (backup->thread_id == thread_id)
      backup->cancel();
}

std::string last_backup()
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  return last_outcome;
}

const char *backup_state()
{
  std::lock_guard<std::mutex> guard(backups_mutex);
  if (backups.empty())
    return last_state;
  switch (backups.back()->progress().phase)
  {
  case EK_BACKUP_FOLLOWS: return "armed";
  case EK_BACKUP_LOG:
  case EK_BACKUP_SYNC:
  case EK_BACKUP_DONE: return "ending";
  default: return "copying";
  }
}
