/* Messages about our tables for the server's backups. */
#ifndef EVENKEEL_BACKUP_H
#define EVENKEEL_BACKUP_H

/* BACKUP STAGE START: warns the client that makes the backup, and writes the warning to the server's log. */
void evenkeel_prepare_for_backup();

#endif
