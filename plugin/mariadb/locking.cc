/* Which locks a statement takes, and where it begins and ends. */
#include "ha_evenkeel.h"

int ha_evenkeel::external_lock(THD *thd, int lock_type)
{
  if (lock_type == F_UNLCK)
  {
    close_scan();
    statement_leaves(thd);
  }
  else
  {
    if (lock_type == F_WRLCK)
      m_lock= (m_lock & EK_LOCK_SKIP) | EK_LOCK_EXCLUSIVE;
    statement_enters(thd, m_lock != EK_LOCK_NONE);
  }
  return 0;
}

int ha_evenkeel::start_stmt(THD *thd, thr_lock_type lock_type)
{
  m_lock= lock_type >= TL_FIRST_WRITE ? EK_LOCK_EXCLUSIVE
        : lock_type == TL_READ_WITH_SHARED_LOCKS ? EK_LOCK_SHARED : EK_LOCK_NONE;
  statement_enters(thd, m_lock != EK_LOCK_NONE);
  statement_leaves(thd);
  return 0;
}

THR_LOCK_DATA **ha_evenkeel::store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  if (type == TL_READ_SKIP_LOCKED)
    m_lock= EK_LOCK_SHARED | EK_LOCK_SKIP;
  else if (type == TL_WRITE_SKIP_LOCKED)
    m_lock= EK_LOCK_EXCLUSIVE | EK_LOCK_SKIP;
  else if (type >= TL_FIRST_WRITE)
    m_lock= EK_LOCK_EXCLUSIVE;
  else
    m_lock= type == TL_READ_WITH_SHARED_LOCKS ? EK_LOCK_SHARED : EK_LOCK_NONE;
  return to;
}
