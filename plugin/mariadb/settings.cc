/* The settings of the plugin, `evenkeel_*`. */
#include "settings.h"

ulonglong memory_size, log_size;
uint flush_at_commit;
char *data_dir;

static MYSQL_SYSVAR_ULONGLONG(memory_size, memory_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "The one memory budget in bytes: pages, indexes, undo, log buffer. Default 256 MiB", nullptr,
  nullptr, 256ULL << 20, 16ULL << 20, 1ULL << 44, 1ULL << 20);
static MYSQL_SYSVAR_ULONGLONG(log_size, log_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "The greatest length of the log in bytes. Default 2 GiB", nullptr, nullptr, 2ULL << 30,
  32ULL << 20, 1ULL << 40, 1ULL << 20);
static MYSQL_SYSVAR_UINT(flush_at_commit, flush_at_commit, PLUGIN_VAR_RQCMDARG,
  "1: a commit is synced (default); 2: written, synced each second; 0: each second", nullptr,
  nullptr, 1, 0, 2, 1);
static MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "Directory of the tables, below the server's data directory unless absolute", nullptr, nullptr,
  "#evenkeel");
static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Seconds to wait for a lock of a row before error 1205", nullptr, nullptr, 50, 0, 1073741824, 0);

st_mysql_sys_var *settings[]= {MYSQL_SYSVAR(memory_size), MYSQL_SYSVAR(log_size),
  MYSQL_SYSVAR(flush_at_commit), MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(lock_wait_timeout), nullptr};

uint64_t lock_wait_ms(THD *thd)
{
  const ulong server= thd->variables.lock_wait_timeout;
  return 1000ULL * MY_MIN(THDVAR(thd, lock_wait_timeout), server);
}
