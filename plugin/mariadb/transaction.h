/* Each connection's transaction. */
#ifndef EVENKEEL_TRANSACTION_H
#define EVENKEEL_TRANSACTION_H
#include "errors.h"
#include "last_change.h"
#include <vector>

/* A connection's transaction. The record is made at the first use of a table and freed with the connection. */
struct Trx
{
  Trx() : canceller(ek_canceller_new()) {}
  ~Trx() { ek_canceller_free(canceller); }
  Trx(const Trx &)= delete;

  ek_txn *txn= nullptr;
  /* Cancels the transaction's waits; KILL uses it in other threads, under the lock of `kill_query`. */
  ek_canceller_handle *const canceller;
  /* The present statement changes or locks rows. */
  bool statement_locks= false;
  /* The tables that the transaction has changed, and their number before the present statement. */
  std::vector<Last_change> changed;
  size_t changed_before= 0;
  /* Prepared under this id: `txn` is gone, and the engine keeps the transaction. */
  bool prepared= false;
  /* Prepared by XA PREPARE, not by the server for its binlog. */
  bool by_user= false;
  /* XA PREPARE has left `txn` open, because the transaction has changed nothing; it keeps its locks until the
     decision. */
  bool only_locks= false;
  std::string xid;
  /* Of a replica's worker: its place among the prepared transactions that no binlog orders, and the one before it
     (replica_order.cc). */
  uint64_t place= 0;
  Trx *earlier= nullptr;
  /* The ordered half of a commit has run; `commit_error` is its error, if it failed. */
  bool committed= false;
  uint64_t commit= 0;
  bool commit_failed= false;
  ek_error commit_error;
};

/* The connection's transaction, begun if need be; null with an error, also while it is prepared. */
ek_txn *begun(THD *thd, ek_error *error);
/* The connection's record, made if need be. */
Trx *trx_of(THD *thd);
/* The statement uses one more table; returns 0 or the server's error number. */
int statement_enters(THD *thd, bool locks);
/* The statement has ended, and the transaction continues. */
void statement_ends(Trx *trx);
/* The transaction has changed a row of a table. */
void has_changed(THD *thd, const Last_change &table);
/* The transaction is committed: sets the time of its changes to now. */
void date_changes(Trx *trx);
/* True if the connection's transaction continues after the statement. */
bool in_transaction(THD *thd);
/* How a schema change of the connection waits for transactions that use the table: as long as for a row lock, until
   KILL. The connection's own transaction may have used a table that is dropped: the table goes at the end of DROP
   TEMPORARY TABLE, which does not commit, or after a failed CREATE ... SELECT. */
ek_schema_wait schema_wait(THD *thd);
/* The connection's transaction has ended or is about to: no other thread cancels it from here on. */
void ended(Trx *trx);

/* The number of the connection whose transaction has this tag; 0 if there is none. */
uint64_t connection_of(uint64_t tag);

/* For the engine: a transaction is about to wait for others; a thread begins (EK_WAIT_*) or ends a wait. */
uint8_t transaction_asks(uint64_t waiter);
void transaction_waits(uint64_t waiter, const uint64_t *others, size_t len);
void thread_waits(uint8_t kind);
void thread_goes_on();

/* For the server. */
extern const uint savepoint_bytes;
int evenkeel_rollback(handlerton *, THD *thd, bool all);
int evenkeel_savepoint_set(handlerton *, THD *thd, void *sv);
int evenkeel_savepoint_rollback(handlerton *, THD *thd, void *sv);
int evenkeel_savepoint_release(handlerton *, THD *thd, void *sv);
bool evenkeel_savepoint_can_release_mdl(handlerton *, THD *thd);
int evenkeel_start_consistent_snapshot(handlerton *, THD *thd);
int evenkeel_close_connection(handlerton *, THD *thd);
void evenkeel_kill_query(handlerton *, THD *thd, enum thd_kill_levels level);
#endif
