/* Which locks a statement takes, and where the statement begins. */
#include "ha_evenkeel.h"
#include "ddl.h"
#include "index_build.h"
#include "fault_injection.h"

/* The transaction that works on the table. A sequence has a transaction of its own for each change, because a
   rollback must not bring its numbers back. A table from which rows are copied has one of its own to read them. */
ek_txn *ha_evenkeel::transaction(ek_error *error)
{
  if (table_share->table_type != TABLE_TYPE_SEQUENCE)
    return m_own ? m_own : begun(ha_thd(), error);
  if (!m_own)
    m_own= ek_begin(evenkeel_db, EK_READ_COMMITTED, 1000, error);
  return m_own;
}

void ha_evenkeel::end_own()
{
  ek_error error;
  if (m_own && ek_rollback(m_own, &error))
    report("rollback of a sequence's change or a copied table's read", error);
  m_own= nullptr;
}

int ha_evenkeel::external_lock(THD *thd, int lock_type)
{
  if (lock_type == F_UNLCK)
  {
    m_copy.reset();
    close_scan();
    end_own();
    clear_rows();
    leave_handler(thd);
    m_is_entered= false;
    return 0;
  }
  if (lock_type == F_WRLCK)
    m_lock= (m_lock & EK_LOCK_SKIP) | EK_LOCK_EXCLUSIVE;
  reads_lock(thd);
  m_outer_lock= m_lock;
  m_is_entered= true;
  m_changed= false;
  return statement_enters(thd, m_lock != EK_LOCK_NONE);
}

/* HANDLER reads at every level as a plain SELECT below SERIALIZABLE does. */
void ha_evenkeel::init_table_handle_for_HANDLER()
{
  m_lock= m_outer_lock= EK_LOCK_NONE;
  m_in_handler= true;
}

/* HANDLER holds its metadata lock from OPEN to CLOSE, not to the end of the transaction. After CLOSE a schema change
   must not wait for the transaction in the engine. For what the transaction has read or changed by other statements
   it holds other metadata locks. */
void ha_evenkeel::leave_handler(THD *thd)
{
  if (!m_in_handler || plant("ClosedHandlerHolds"))
    return;
  m_in_handler= false;
  Trx *trx= trx_of(thd);
  if (trx->txn && !ek_is_ended(trx->txn))
    ek_leave_table(trx->txn, name());
}

/* Plain reads of a SERIALIZABLE transaction lock. */
void ha_evenkeel::reads_lock(THD *thd)
{
  if (m_lock == EK_LOCK_NONE && thd_tx_isolation(thd) == ISO_SERIALIZABLE && in_transaction(thd))
    m_lock= EK_LOCK_SHARED;
}

/* SKIP LOCKED; it applies only to the statement that says it. */
static uint8_t skips(thr_lock_type type)
{
  return type == TL_WRITE_SKIP_LOCKED || type == TL_READ_SKIP_LOCKED ? EK_LOCK_SKIP : 0;
}

/* A statement begins within another one that has entered the table: in a function or trigger, or under LOCK TABLES.
   Instructions of a routine that are no statements of their own (RETURN, IF, SET, ...) do not say why they read, so
   they use the lock that the outer statement chose. Below SERIALIZABLE a plain SELECT reads a snapshot in any case.
   A temporary table made meanwhile was not entered. */
int ha_evenkeel::start_stmt(THD *thd, thr_lock_type type)
{
  if (!m_is_entered || plant("InnerStatementAsked"))
  {
    take_lock(thd, type);
    reads_lock(thd);
  }
  else
  {
    const bool is_plain= thd_sql_command(thd) == SQLCOM_SELECT && type == TL_READ &&
                         thd_tx_isolation(thd) != ISO_SERIALIZABLE && !plant("InnerSelectLocks");
    m_is_copied= is_copied_from(thd, type);
    m_lock= is_plain || m_is_copied ? EK_LOCK_NONE : (m_outer_lock & ~EK_LOCK_SKIP) | skips(type);
  }
  m_changed= false;
  /* The server's cached flags are those of the outer statement; for a partitioned table, those of its first
     partition. */
  if (!plant("FlagsOfOuterStatement"))
    cached_table_flags= table_flags();
  if (table->part_info)
    table->file->init();
  return statement_enters(thd, m_lock != EK_LOCK_NONE);
}

/* Before the server writes a row it looks for its hash, or for periods of its key WITHOUT OVERLAPS. This lock keeps
   others from writing such a row from here on. */
int ha_evenkeel::lock_checked(const Bound &at)
{
  const KEY *key= &table->key_info[active_index];
  const bool is_hash= key->algorithm == HA_KEY_ALG_LONG_HASH;
  if (!(is_hash || key->without_overlaps) || !(m_lock & EK_LOCK_EXCLUSIVE) || !checks_before_writing() ||
      plant("CheckedKeyUnlocked"))
    return 0;
  /* The two columns of the period come last. */
  Bound whole= at;
  if (!is_hash)
    whole.values.resize(MY_MIN(whole.values.size(), (size_t) key->user_defined_key_parts - 2));
  ek_error error;
  ek_txn *txn= transaction(&error);
  const ek_bound all= whole.get();
  return txn && !ek_lock_range(txn, m_table, index_name(active_index), &all, &error) ? 0 : fail(error);
}

uint8_t ha_evenkeel::lock_of(THD *thd, thr_lock_type type)
{
  if (type == TL_WRITE_SKIP_LOCKED)
    return EK_LOCK_EXCLUSIVE | EK_LOCK_SKIP;
  return type >= TL_FIRST_WRITE ? EK_LOCK_EXCLUSIVE : plain_read(thd, type);
}

/* The lock of a table that is only read, chosen as in InnoDB: none for a plain SELECT. Rows from which other rows
   are made are locked from REPEATABLE READ on; rows that other statements read are locked at every level. */
uint8_t ha_evenkeel::plain_read(THD *thd, thr_lock_type type)
{
  const int command= thd_sql_command(thd);
  if (type == TL_READ_WITH_SHARED_LOCKS)
    return EK_LOCK_SHARED;
  if (type == TL_READ_SKIP_LOCKED)
    return EK_LOCK_SHARED | EK_LOCK_SKIP;
  if (command == SQLCOM_CHECKSUM || command == SQLCOM_CREATE_SEQUENCE ||
      command == SQLCOM_ANALYZE || command == SQLCOM_CHECK)
    return EK_LOCK_NONE;
  /* FLUSH TABLES ... WITH READ LOCK itself keeps writers out. */
  if (command == SQLCOM_FLUSH && type == TL_READ_NO_INSERT)
    return thd_tx_isolation(thd) == ISO_SERIALIZABLE ? EK_LOCK_SHARED : EK_LOCK_NONE;
  const bool is_plain= type == TL_READ || type == TL_READ_HIGH_PRIORITY;
  if (command == SQLCOM_SELECT && type != TL_READ_NO_INSERT && !(is_plain && thd_in_lock_tables(thd)))
    return EK_LOCK_NONE;
  const bool makes_rows= command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT ||
                         command == SQLCOM_UPDATE || command == SQLCOM_CREATE_TABLE;
  if (makes_rows && (type == TL_READ || type == TL_READ_NO_INSERT) &&
      thd_tx_isolation(thd) <= ISO_READ_COMMITTED)
    return EK_LOCK_NONE;
  return EK_LOCK_SHARED;
}

/* True if an ALTER copies the rows of this table. */
bool ha_evenkeel::is_copied_from(THD *thd, thr_lock_type type) const
{
  return type == TL_READ_NO_INSERT && copies_table(thd) && table_share->tmp_table == NO_TMP_TABLE &&
         table_share->table_type != TABLE_TYPE_SEQUENCE;
}

/* Rows that an ALTER copies are not locked: the server keeps writers away when it begins to read them
   (`begin_copied`). A temporary table has rows that the connection's own transaction has changed. */
void ha_evenkeel::take_lock(THD *thd, thr_lock_type type)
{
  m_is_copied= is_copied_from(thd, type);
  m_lock= m_is_copied ? EK_LOCK_NONE : lock_of(thd, type);
}

THR_LOCK_DATA **ha_evenkeel::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type != TL_IGNORE)
    take_lock(thd, type);
  return to;
}

/* Below REPEATABLE READ, UPDATE and DELETE read the last committed version of a row that another transaction holds,
   and wait for the row only if that version matches. */
void ha_evenkeel::try_semi_consistent_read(bool yes)
{
  m_peek= yes && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED;
}

/* A row did not match: below REPEATABLE READ its lock is released. */
void ha_evenkeel::unlock_row()
{
  if (m_scan && m_scan_row &&
      (thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED || plant("UnlockedAtRepeatableRead")))
    ek_scan_unlock(m_scan);
}
