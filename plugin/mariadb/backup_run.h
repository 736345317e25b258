/* A backup while it runs, for the files that take one. */
#ifndef EVENKEEL_BACKUP_RUN_H
#define EVENKEEL_BACKUP_RUN_H
#include "backup.h"
#include "engine.h"

/* A backup, visible to other threads as long as it exists. */
class Backup
{
public:
  /* `of_thread`: the connection whose KILL cancels it, or 0. `onto`: the directory of its base, or "". Takes `backup`. */
  Backup(my_thread_id of_thread, const char *to, const char *onto, ek_backup *backup);
  ~Backup();
  Backup(const Backup &)= delete;
  Backup &operator=(const Backup &)= delete;

  /* Others do not see it any more. */
  void leave();
  bool take(ek_backup_report *report, ek_error *error)
  {
    return ek_backup_take(evenkeel_db, ek_text(path), ek_text(base), m_backup, report, error) != 0;
  }
  void cancel() const { ek_backup_cancel(m_backup); }
  void hurry() const { ek_backup_hurry(m_backup); }
  void end(const std::string &note) const { ek_backup_end(m_backup, ek_text(note)); }
  /* False if the end is fixed. */
  bool give_up() const { return ek_backup_give_up(m_backup) != 0; }
  ek_backup_figures progress() const;
  Backup_figures figures() const;

  const my_thread_id thread_id;
  const std::string path, base;

private:
  ek_backup *m_backup;
};

/* The outcome of a backup, for the status and the server's log. */
void note_backup(const Backup &backup, const std::string &outcome, bool failed);
std::string outcome_of(const Backup &backup, const ek_backup_report &report);
#endif
