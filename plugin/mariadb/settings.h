/* The settings of the plugin, `evenkeel_*`. */
#ifndef EVENKEEL_SETTINGS_H
#define EVENKEEL_SETTINGS_H
#include "server.h"

extern ulonglong memory_size, log_size;
extern uint page_size, flush_at_commit;
extern char *data_dir;
extern st_mysql_sys_var *settings[];

/* How long the connection's statements wait for a row lock, in milliseconds. */
uint64_t lock_wait_ms(THD *thd);
/* True if a row newer than the snapshot is a conflict for the connection's next transaction. */
bool snapshot_isolation(THD *thd);
#endif
