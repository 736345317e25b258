/* Backups by the server (BACKUP STAGE, which mariadb-backup uses): they do not copy our files. */
#include "backup.h"
#include "server.h"

void evenkeel_prepare_for_backup()
{
  static const char text[]= "tables with ENGINE=EVENKEEL are not in a backup made of the server's files: dump them "
                            "(mariadb-dump), or stop the server and copy all of its data directory";
  sql_print_warning("EVENKEEL: %s", text);
  if (THD *thd= current_thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "EVENKEEL: %s", text);
}
