/* Each connection's transaction: begin, statements, savepoints, rollback, KILL, errors. */
#include "transaction.h"
#include "alter.h"
#include "backup.h"
#include "foreign.h"
#include "fault_injection.h"
#include "replica_order.h"
#include "settings.h"
#include "two_phase.h"
#include <mysql/service_thd_wait.h>
#include <algorithm>
#include <memory>
#include <mutex>
#include <set>

/* Functions of the server, which declares them only for InnoDB. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);

/* Guards every connection's record against KILL from another thread, and `connections`. KILL takes the connection's
   own mutex (THD::LOCK_thd_data) first, so no holder of this mutex takes that one, as thd_set_ha_data does. The
   mutex outlives the plugin's uninstalling, because a KILL may still see it. */
static std::mutex cancel_mutex;
/* Connections that have a transaction's record. A connection is in it more than once if the server reads its own
   tables in a transaction next to the present one. */
static std::multiset<THD *> connections;

bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

Trx *trx_of(THD *thd)
{
  Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
  if (!trx)
  {
    std::unique_ptr<Trx> made(new Trx);
    {
      std::lock_guard<std::mutex> guard(cancel_mutex);
      connections.insert(thd);
    }
    trx= made.release();
    thd_set_ha_data(thd, evenkeel_hton, trx);
  }
  return trx;
}

/* The engine's isolation level for the connection's next transaction. */
static uint8_t level(THD *thd, const Trx *trx)
{
  static const uint8_t levels[]= {EK_READ_UNCOMMITTED, EK_READ_COMMITTED, EK_REPEATABLE_READ,
                                  EK_SERIALIZABLE};
  const uint8_t of_session= levels[thd_tx_isolation(thd)];
  /* A single statement that only reads is serializable by its snapshot. */
  if (of_session == EK_SERIALIZABLE && !in_transaction(thd) && !trx->statement_locks)
    return EK_REPEATABLE_READ;
  return of_session;
}

/* A statement begins in the transaction. It can be undone alone, waits as long as the connection says, and a KILL
   that has already come cancels it. */
static void statement_begins(THD *thd, const Trx *trx)
{
  ek_statement(trx->txn, 1);
  if (thd_kill_level(thd) != THD_IS_NOT_KILLED)
    ek_cancel(trx->canceller);
}

/* True between XA PREPARE and the connection's decision or end. */
static bool is_prepared(THD *thd)
{
  return thd->transaction->xid_state.get_state_code() == XA_PREPARED;
}

/* The connection was reset after its XA PREPARE: it may no longer decide what it had prepared, and a transaction
   that had only locked belongs to nobody any more. */
static void leave_prepared(THD *thd, Trx *trx)
{
  if (!trx->by_user || is_prepared(thd) || plant("PreparedNotLeft"))
    return;
  trx->prepared= trx->committed= trx->commit_failed= false;
  if (!trx->only_locks)
    return;
  ek_error error;
  ek_txn *txn= trx->txn;
  ended(trx);
  if (ek_rollback(txn, &error))
    report("rollback of a connection that was reset", error);
}

ek_txn *begun(THD *thd, ek_error *error)
{
  Trx *trx= trx_of(thd);
  if (!trx->txn)
  {
    /* A prepared transaction waits for its decision; a new transaction would take that decision. */
    if (trx->prepared || is_prepared(thd))
    {
      error->kind= EK_INVALID;
      snprintf(error->text, sizeof error->text, "the connection's transaction is prepared");
      return nullptr;
    }
    trx->txn= ek_begin(evenkeel_db, level(thd, trx), lock_wait_ms(thd), error);
    if (!trx->txn)
      return nullptr;
    ek_set_tag(trx->txn, (uint64_t) thd);
    ek_set_snapshot_isolation(trx->txn, snapshot_isolation(thd));
    ek_set_foreign_key_checks(trx->txn, checks_foreign_keys(thd));
    trx->committed= false;
    trx->commit= 0;
    ek_canceller_of(trx->canceller, trx->txn);
    statement_begins(thd, trx);
  }
  return trx->txn;
}

static int32_t is_killed(void *thd) { return thd_kill_level((THD *) thd) != THD_IS_NOT_KILLED; }

ek_schema_wait schema_wait(THD *thd)
{
  const Trx *trx= (const Trx *) thd_get_ha_data(thd, evenkeel_hton);
  return {trx ? trx->txn : nullptr, lock_wait_ms(thd), is_killed, thd, !checks_foreign_keys(thd)};
}

void ended(Trx *trx)
{
  trx->txn= nullptr;
  trx->only_locks= false;
  ek_canceller_of(trx->canceller, nullptr);
}

/* A plugin that was loaded into a server without a binlog has no `prepare`: XA PREPARE would only warn, and report
   success. */
static int refuse_xa()
{
  my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0),
           "XA unless the server has loaded it at its start (EVENKEEL was loaded by INSTALL)");
  return HA_ERR_WRONG_COMMAND;
}

int statement_enters(THD *thd, bool locks)
{
  Trx *trx= trx_of(thd);
  leave_prepared(thd, trx);
  /* The server denies tables to a connection with a prepared transaction, except the tables of functions that DO,
     SET and SELECT call. The error is InnoDB's. */
  if ((trx->prepared || is_prepared(thd)) && !plant("PreparedEnters"))
    return HA_ERR_WRONG_COMMAND;
  if (locks && !evenkeel_hton->prepare && thd->transaction->xid_state.is_explicit_XA())
    return refuse_xa();
  /* Not for a statement inside another one, such as a trigger's: both are undone together. */
  if (!thd->ha_data[evenkeel_hton->slot].ha_info[0].is_started())
  {
    trx->statement_locks= false;
    if (!trx->txn)
      trx->committed= trx->commit_failed= false;
    trx->changed_before= trx->changed.size();
    if (trx->txn && !ek_is_ended(trx->txn))
    {
      ek_set_lock_wait(trx->txn, lock_wait_ms(thd));
      statement_begins(thd, trx);
    }
  }
  if (trx->txn && !plant("ChecksOfFirstStatement"))
    ek_set_foreign_key_checks(trx->txn, checks_foreign_keys(thd));
  trx->statement_locks|= locks;
  trans_register_ha(thd, false, evenkeel_hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, evenkeel_hton, 0);
  return 0;
}

void has_changed(THD *thd, const Last_change &table)
{
  std::vector<Last_change> &changed= trx_of(thd)->changed;
  if (std::find(changed.begin(), changed.end(), table) == changed.end())
    changed.push_back(table);
}

void date_changes(Trx *trx)
{
  if (trx->changed.empty())
    return;
  const time_t now= time(nullptr);
  for (const Last_change &change : trx->changed)
    *change= now;
  trx->changed.clear();
}

void statement_ends(Trx *trx)
{
  if (trx->txn)
    ek_statement(trx->txn, 0);
}

int evenkeel_rollback(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  ek_error error;
  int failed= 0;
  if (all || !in_transaction(thd))
  {
    if (trx->prepared)
      failed= rollback_prepared(trx, &error);
    else if (trx->txn)
    {
      ek_txn *txn= trx->txn;
      ended(trx);
      failed= ek_rollback(txn, &error);
    }
    replica_has_decided(trx);
    trx->prepared= trx->committed= trx->commit_failed= false;
    trx->changed.clear();
  }
  else if (trx->txn)
  {
    trx->changed.resize(MY_MIN(trx->changed.size(), trx->changed_before));
    /* The transaction of a connection that ends is rolled back at once, without first undoing its statement row by
       row. */
    if (thd->killed >= KILL_CONNECTION)
    {
      ek_txn *txn= trx->txn;
      ended(trx);
      failed= ek_rollback(txn, &error);
      thd->mark_transaction_to_rollback(true);
    }
    else if (!ek_is_ended(trx->txn))
      failed= ek_undo_statement(trx->txn, &error);
    statement_ends(trx);
    /* A deadlock has ended it, or a KILL during the undo of a long statement. */
    if (trx->txn && ek_is_ended(trx->txn))
      thd->mark_transaction_to_rollback(true);
  }
  if (!failed)
    return 0;
  report("rollback", error);
  return HA_ERR_ROLLBACK;
}

/* The name of a savepoint is the address of the server's record of it. */
static int savepoint(THD *thd, void *sv, uint8_t what)
{
  Trx *trx= trx_of(thd);
  ek_error error;
  /* A transaction that is prepared or has ended has no savepoints left to forget. */
  if (what == EK_SAVEPOINT_RELEASE && !trx->txn && !plant("ReleaseBegins"))
    return 0;
  ek_txn *txn= begun(thd, &error);
  if (!txn)
    return raise_error(thd, error);
  char name[32];
  snprintf(name, sizeof name, "%p", sv);
  if (ek_savepoint(trx->txn, ek_text(name), what, &error))
    return raise_error(thd, error);
  return 0;
}

/* Bytes of ours in the server's record of a savepoint: the number of tables changed before it. */
const uint savepoint_bytes= sizeof(size_t);

int evenkeel_savepoint_set(handlerton *, THD *thd, void *sv)
{
  const size_t changed= trx_of(thd)->changed.size();
  memcpy(sv, &changed, sizeof changed);
  return savepoint(thd, sv, EK_SAVEPOINT_SET);
}

int evenkeel_savepoint_rollback(handlerton *, THD *thd, void *sv)
{
  const int error= savepoint(thd, sv, EK_SAVEPOINT_ROLLBACK);
  Trx *trx= trx_of(thd);
  size_t changed;
  memcpy(&changed, sv, sizeof changed);
  trx->changed.resize(MY_MIN(trx->changed.size(), changed));
  /* A KILL during a long undo has ended the transaction: the error is that of its end. */
  if (!trx->txn || !ek_is_ended(trx->txn))
    return error;
  thd->mark_transaction_to_rollback(true);
  return HA_ERR_ROLLBACK;
}

int evenkeel_savepoint_release(handlerton *, THD *thd, void *sv)
{
  /* SAVEPOINT with an existing name: the server releases the old one and at once sets it anew in the same record,
     which replaces ours. The savepoints after it stay, but a release would forget them. */
  if (thd_sql_command(thd) == SQLCOM_SAVEPOINT)
    return 0;
  return savepoint(thd, sv, EK_SAVEPOINT_RELEASE);
}

/* True if the server may release its metadata locks of tables that were first used after the savepoint. As in
   InnoDB, not if the transaction has changed or locked rows: an ALTER of the table would wait for the transaction in
   the engine, and the transaction for the ALTER in the server, which does not detect that deadlock. Nor in a
   function, whose statement has open scans. */
bool evenkeel_savepoint_can_release_mdl(handlerton *, THD *thd)
{
  const Trx *trx= trx_of(thd);
  return !thd->in_sub_stmt && (!trx->txn || ek_leave_tables(trx->txn));
}

int evenkeel_start_consistent_snapshot(handlerton *, THD *thd)
{
  /* Without a database there is no snapshot to take, and this reports no error. */
  const Database_use use;
  if (!use)
    return 0;
  /* As in InnoDB: at other levels there is no snapshot that the transaction could keep. */
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
  {
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                 "EVENKEEL: WITH CONSISTENT SNAPSHOT was ignored because this phrase can only be "
                 "used with REPEATABLE READ isolation level.");
    return 0;
  }
  ek_error error;
  leave_prepared(thd, trx_of(thd));
  ek_txn *txn= begun(thd, &error);
  if (!txn || ek_take_snapshot(txn, &error))
    return raise_error(thd, error);
  trans_register_ha(thd, true, evenkeel_hton, 0);
  return 0;
}

int evenkeel_close_connection(handlerton *, THD *thd)
{
  Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
  if (!trx)
    return 0;
  replica_has_decided(trx);
  if (trx->txn)
  {
    ek_error error;
    ek_txn *txn= trx->txn;
    ended(trx);
    if (ek_rollback(txn, &error))
      report("rollback of a connection that ends", error);
  }
  {
    std::lock_guard<std::mutex> guard(cancel_mutex);
    connections.erase(connections.find(thd));
  }
  /* When this returns, a KILL that has found the record is over. */
  thd_set_ha_data(thd, evenkeel_hton, nullptr);
  delete trx;
  return 0;
}

void evenkeel_kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  {
    std::lock_guard<std::mutex> guard(cancel_mutex);
    Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
    if (trx)
      ek_cancel(trx->canceller);
  }
  cancel_builds(thd_get_thread_id(thd));
  cancel_backups(thd_get_thread_id(thd));
}

/* A replica's worker reports all transactions before it, and the server ends those of them that commit later. With a
   binlog every wait is reported: a group commit that waits for more transactions (binlog_commit_wait_count) ends its
   wait if one of the group holds up others. A transaction hears that from the one right behind it. */
uint8_t transaction_asks(uint64_t waiter)
{
  THD *thd= (THD *) waiter;
  if (!thd || thd != current_thd || !thd_need_wait_reports(thd))
    return EK_REPORT_NOTHING;
  return thd->rgi_slave ? EK_REPORT_ALL : EK_REPORT_NEAREST;
}

void transaction_waits(uint64_t waiter, const uint64_t *others, size_t len)
{
  THD *thd= (THD *) waiter;
  /* The other transaction may be a prepared one that belongs to none of our connections. */
  std::lock_guard<std::mutex> guard(cancel_mutex);
  for (size_t i= 0; i < len; i++)
    if (connections.count((THD *) others[i]))
      thd_rpl_deadlock_check(thd, (THD *) others[i]);
}

uint64_t connection_of(uint64_t tag)
{
  THD *thd= (THD *) tag;
  std::lock_guard<std::mutex> guard(cancel_mutex);
  return connections.count(thd) ? thd_get_thread_id(thd) : 0;
}

/* A thread pool lets another connection run meanwhile. Threads that build indexes have no connection. */
void thread_waits(uint8_t kind)
{
  static const int reasons[]= {THD_WAIT_GROUP_COMMIT, THD_WAIT_DISKIO, THD_WAIT_ROW_LOCK};
  if (THD *thd= current_thd)
    thd_wait_begin(thd, reasons[kind]);
}

void thread_goes_on()
{
  if (THD *thd= current_thd)
    thd_wait_end(thd);
}
