/* Backups: our own, and those that the server's tools end. */
#ifndef EVENKEEL_BACKUP_H
#define EVENKEEL_BACKUP_H
#include "server.h"
#include <functional>
#include <string>

/* BACKUP STAGE START: waits until an armed backup has little left. Without one, warns the client that makes the backup,
   and writes the warning to the server's log. */
void evenkeel_prepare_for_backup();
/* BACKUP STAGE END, or the loss of its connection: ends an armed backup where commits are blocked. */
void evenkeel_end_backup();

/* SET GLOBAL evenkeel_backup_armed_dir: begins a backup that follows the log until a BACKUP STAGE END. An empty path waits
   for the outcome of one that is ending, and cancels one that is not. With the base of an incremental backup, or "". True
   if it failed; the client has been told. */
bool arm_backup(THD *thd, const char *path, const char *base);
/* The database is open. */
void allow_arming();
/* Before the database is closed: cancels an armed backup, and waits for its thread. */
void disarm_backup();

/* SET GLOBAL evenkeel_backup_dir: copies our database to that directory, in the statement's thread; with the directory of
   an earlier backup, or "", what has changed since. True if it failed; the client has been told. */
bool back_up(THD *thd, const char *path, const char *base);
/* False if this is no directory of a backup; the client has been told. */
bool is_backup_path(const char *variable, const char *path);

struct Backup_figures
{
  my_thread_id thread_id;
  /* What it copies, and where. */
  std::string what;
  const char *phase;
  uint64_t bytes, bytes_expected;
};

/* Calls `each` for the backup that is under way, if there is one. */
void each_backup(const std::function<void(const Backup_figures &)> &each);

/* KILL: cancels the backup of a connection. */
void cancel_backups(my_thread_id thread_id);

/* What the backup that is under way does, or the outcome of the last one. */
const char *backup_state();

/* The outcome of the last backup, empty before the first one. */
std::string last_backup();

#endif
