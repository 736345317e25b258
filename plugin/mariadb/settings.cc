/* The settings of the plugin, `evenkeel_*`. */
#include "settings.h"
#include "entry.h"
#include "errors.h"
#include "fault.h"

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
static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Seconds to wait for a row lock before error 1205", nullptr, nullptr, 50, 0, 1073741824, 0);
/* As the server's innodb_snapshot_isolation, whose default changed with 11.6.2. */
static const my_bool SNAPSHOT_ISOLATION= MYSQL_VERSION_ID >= 110602;
static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_RQCMDARG,
  "ON: a statement of a REPEATABLE READ transaction that changes or locks a row newer than "
  "the transaction's snapshot fails with error 1020. OFF: it takes the newest committed row, as InnoDB "
  "without innodb_snapshot_isolation. Applies to transactions that begin after it was set", nullptr,
  nullptr, SNAPSHOT_ISOLATION);

#ifdef EVENKEEL_PLANTED
static MYSQL_SYSVAR_ULONGLONG(fault_new, fault_new, PLUGIN_VAR_RQCMDARG, "Allocations until one fails", nullptr,
  nullptr, 0, 0, ~0ULL, 0);
static MYSQL_SYSVAR_INT(fault_code, fault_code, PLUGIN_VAR_RQCMDARG, "Changes of rows fail with this code", nullptr,
  nullptr, -1, -1, 10000, 0);
#endif

st_mysql_sys_var *settings[]= {
#ifdef EVENKEEL_PLANTED
  MYSQL_SYSVAR(fault_new), MYSQL_SYSVAR(fault_code),
#endif
  MYSQL_SYSVAR(memory_size), MYSQL_SYSVAR(log_size),
  MYSQL_SYSVAR(page_size), MYSQL_SYSVAR(flush_at_commit), MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(lock_wait_timeout),
  MYSQL_SYSVAR(snapshot_isolation), nullptr};

uint64_t lock_wait_ms(THD *thd)
{
  const ulong server= thd->variables.lock_wait_timeout;
  return 1000ULL * MY_MIN(THDVAR(thd, lock_wait_timeout), server);
}

bool snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }
