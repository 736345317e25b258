/* What the server's backups are told of our tables. */
#ifndef EVENKEEL_BACKUP_H
#define EVENKEEL_BACKUP_H

/* BACKUP STAGE START: warns whoever makes the backup, and the server's log. */
void evenkeel_prepare_for_backup();

#endif
