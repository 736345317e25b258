/* The settings of the plugin, `evenkeel_*`. */
#include "settings.h"
#include "backup.h"
#include "entry.h"
#include "errors.h"
#include "fault.h"
#include "retention.h"
#include <mysqld.h>
#include <string>

ulonglong memory_size, log_size;
uint page_size, flush_at_commit;
char *data_dir;

/* A quarter of the memory that this machine has or this process may use. */
static ulonglong default_memory()
{
  return MY_MAX((ulonglong) ek_machine_memory() / 4 >> 20, 16) << 20;
}

/* Gives the engine a new value; the old one stays if the engine refuses. */
static bool give(THD *thd, const char *name, ulonglong value)
{
  ek_error error;
  const Database_use use;
  if (!use || !ek_set(evenkeel_db, ek_text(name), value, &error))
    return true;
  warn_of_error(thd, error);
  return false;
}

static void set_memory_size(THD *thd, st_mysql_sys_var *, void *to, const void *from)
{
  const ulonglong value= *static_cast<const ulonglong *>(from);
  if (give(thd, "memory_size", value))
    *static_cast<ulonglong *>(to)= value;
}

static void set_log_size(THD *thd, st_mysql_sys_var *, void *to, const void *from)
{
  const ulonglong value= *static_cast<const ulonglong *>(from);
  if (give(thd, "log_size", value))
    *static_cast<ulonglong *>(to)= value;
}

static void set_flush_at_commit(THD *thd, st_mysql_sys_var *, void *to, const void *from)
{
  const uint value= *static_cast<const uint *>(from);
  if (give(thd, "durability", value))
    *static_cast<uint *>(to)= value;
}

/* The destination of the last complete backup; LOCK_global_system_variables guards both. */
static char *backup_dir;
static std::string backup_dir_text;

/* Releases the lock that SET GLOBAL holds, for what takes long: others then read and set variables meanwhile. */
struct Variables_unlocked
{
  Variables_unlocked() { mysql_mutex_unlock(&LOCK_global_system_variables); }
  ~Variables_unlocked() { mysql_mutex_lock(&LOCK_global_system_variables); }
};

/* The base of the next backup; LOCK_global_system_variables guards both. */
static char *backup_base;
static std::string backup_base_text;

static void set_backup_base(THD *, st_mysql_sys_var *, void *to, const void *from)
{
  const char *given= *static_cast<const char *const *>(from);
  const std::string path= given ? given : "";
  if (!path.empty() && !is_backup_path("evenkeel_backup_base", path.c_str()))
    return;
  backup_base_text= path;
  *static_cast<char **>(to)= path.empty() ? nullptr : backup_base_text.data();
}

/* A backup was taken on this base: the next one has none, so that nobody takes an incremental backup for a full one.
   Another session may have set another base meanwhile. */
static void base_is_used(const std::string &base)
{
  if (backup_base_text != base)
    return;
  backup_base= nullptr;
  backup_base_text.clear();
}

static void set_backup_dir(THD *thd, st_mysql_sys_var *, void *to, const void *from)
{
  const char *given= *static_cast<const char *const *>(from);
  const std::string path= given ? given : "", base= backup_base_text;
  if (!path.empty())
  {
    {
      const Variables_unlocked unlocked;
      if (back_up(thd, path.c_str(), base.c_str()))
        return;
    }
    base_is_used(base);
  }
  backup_dir_text= path;
  *static_cast<char **>(to)= path.empty() ? nullptr : backup_dir_text.data();
}

static char *backup_armed_dir;
static std::string backup_armed_dir_text;

static void set_backup_armed_dir(THD *thd, st_mysql_sys_var *, void *to, const void *from)
{
  const char *given= *static_cast<const char *const *>(from);
  const std::string path= given ? given : "", base= backup_base_text;
  {
    const Variables_unlocked unlocked;
    /* It is disarmed whatever the outcome was. */
    if (arm_backup(thd, path.c_str(), base.c_str()) && !path.empty())
      return;
  }
  if (!path.empty())
    base_is_used(base);
  backup_armed_dir_text= path;
  *static_cast<char **>(to)= path.empty() ? nullptr : backup_armed_dir_text.data();
}

static MYSQL_SYSVAR_ULONGLONG(memory_size, memory_size, PLUGIN_VAR_RQCMDARG,
  "Bytes: the one memory budget of pages, indexes, undo, log buffer and locks. Memory that is no "
  "longer allowed is given back in the background. Default: a quarter of the machine's", nullptr,
  entry<set_memory_size>, default_memory(), 16ULL << 20, 1ULL << 44, 1ULL << 20);
static MYSQL_SYSVAR_ULONGLONG(log_size, log_size, PLUGIN_VAR_RQCMDARG,
  "Bytes: the greatest length of the log. More means fewer writes of pages and a longer recovery. "
  "A lower value is reached in the background, as pages that the log holds are written", nullptr,
  entry<set_log_size>, 2ULL << 30, 32ULL << 20, 1ULL << 40, 1ULL << 20);
static MYSQL_SYSVAR_UINT(page_size, page_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "Bytes of a page of a new database: 4096, 8192 or 16384. 0: 4096, or the page size of an existing "
  "database", nullptr, nullptr, 0, 0, 16384, 4096);
static MYSQL_SYSVAR_UINT(flush_at_commit, flush_at_commit, PLUGIN_VAR_RQCMDARG,
  "1: a commit is synced to the disk before it returns; 2: it is written, and synced each second; "
  "0: it is written and synced each second", nullptr, entry<set_flush_at_commit>, 1, 0, 2, 0);
static MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "Directory of the tables, below the server's data directory unless absolute", nullptr, nullptr,
  "#evenkeel");
static MYSQL_SYSVAR_STR(backup_dir, backup_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
  "Setting it copies all EVENKEEL tables, while others use them, to this directory, which is empty or absent; "
  "the statement ends when the copy is complete. The value is the directory of the last complete copy", nullptr,
  entry<set_backup_dir>, nullptr);
static MYSQL_SYSVAR_STR(backup_base, backup_base, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
  "Directory of an earlier backup: the next backup that evenkeel_backup_dir or evenkeel_backup_armed_dir begins copies only "
  "what has changed since, and sets this to '' again. Restoring that backup needs the earlier one as well", nullptr,
  entry<set_backup_base>, nullptr);
static MYSQL_SYSVAR_STR(backup_armed_dir, backup_armed_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
  "Setting it begins a copy of all EVENKEEL tables in this directory, which is empty or absent; the copy ends at the next "
  "BACKUP STAGE END, as of the moment for which that blocks commits (mariadb-backup). Setting it to '' waits for the copy, "
  "and fails if it is not complete; a copy that was not ended is cancelled", nullptr,
  entry<set_backup_armed_dir>, nullptr);
static MYSQL_SYSVAR_UINT(retention_interval, retention_interval, PLUGIN_VAR_RQCMDARG,
  "Seconds between two looks for chunks that are older than the RETAIN of their table; 0: none", nullptr, nullptr, 60, 0,
  86400, 0);
static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Seconds to wait for a row lock before error 1205", nullptr, nullptr, 50, 0, 1073741824, 0);
static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_RQCMDARG,
  "ON: a statement of a REPEATABLE READ transaction that changes or locks a row newer than "
  "the transaction's snapshot fails with error 1020. OFF: it takes the newest committed row, as InnoDB "
  "without innodb_snapshot_isolation. Applies to transactions that begin after it was set", nullptr,
  nullptr, SNAPSHOT_ISOLATION_BY_DEFAULT);

#ifdef EVENKEEL_PLANTED
char *planted;
static MYSQL_SYSVAR_STR(planted, planted, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG, "The planted fault that is armed",
  nullptr, nullptr, getenv("EVENKEEL_PLANTED"));
static MYSQL_SYSVAR_ULONGLONG(fault_new, fault_new, PLUGIN_VAR_RQCMDARG, "Allocations until one fails", nullptr,
  nullptr, 0, 0, ~0ULL, 0);
static MYSQL_SYSVAR_INT(fault_code, fault_code, PLUGIN_VAR_RQCMDARG, "Changes of rows fail with this code", nullptr,
  nullptr, -1, -1, 10000, 0);
static MYSQL_SYSVAR_UINT(fault_pause_ms, fault_pause_ms, PLUGIN_VAR_RQCMDARG,
  "Milliseconds that a query of INFORMATION_SCHEMA uses the database before it reads", nullptr, nullptr, 0, 0, 60000, 0);
#endif

st_mysql_sys_var *settings[]= {
#ifdef EVENKEEL_PLANTED
  MYSQL_SYSVAR(planted), MYSQL_SYSVAR(fault_new), MYSQL_SYSVAR(fault_code),
  MYSQL_SYSVAR(fault_pause_ms),
#endif
  MYSQL_SYSVAR(memory_size), MYSQL_SYSVAR(log_size),
  MYSQL_SYSVAR(page_size), MYSQL_SYSVAR(flush_at_commit), MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(backup_dir), MYSQL_SYSVAR(backup_armed_dir), MYSQL_SYSVAR(backup_base),
  MYSQL_SYSVAR(retention_interval), MYSQL_SYSVAR(snapshot_isolation), nullptr};

uint64_t lock_wait_ms(THD *thd)
{
  const ulong server= thd->variables.lock_wait_timeout;
  return 1000ULL * MY_MIN(THDVAR(thd, lock_wait_timeout), server);
}

bool snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }
