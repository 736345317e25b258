/* Commit, alone and in two phases with the binlog or under a user's XA id; and the transactions that recovery finds. */
#include "two_phase.h"
#include "entry.h"
#include "fault_injection.h"
#include "replica_order.h"
#include "settings.h"
#include "transaction.h"
#include <csignal>
#include <map>
#include <mutex>
#include <vector>
#include <unistd.h>

/* The tables that transactions prepared by XA PREPARE have changed, by two-phase id: any connection may end them. */
static std::mutex prepared_mutex;
static std::map<std::string, std::vector<Last_change>> prepared_changes;

static void keep_changes(Trx *trx)
{
  std::lock_guard<std::mutex> guard(prepared_mutex);
  prepared_changes[trx->xid]= std::move(trx->changed);
  trx->changed.clear();
}

/* Takes the recorded changes of a transaction that is now committed or was rolled back. `changed` are the tables of
   a transaction that recovery found. */
static void end_changes(const std::string &xid, bool committed,
                        const std::vector<std::string> &changed= {})
{
  std::lock_guard<std::mutex> guard(prepared_mutex);
  const auto known= prepared_changes.find(xid);
  if (known == prepared_changes.end())
  {
    for (const std::string &table : changed)
      date_last_change(table);
    return;
  }
  for (const Last_change &change : known->second)
    if (committed)
      *change= time(nullptr);
  prepared_changes.erase(known);
}

/* The newest commit that may not be durable yet. */
static std::atomic<uint64_t> newest_commit;

static void in_effect(uint64_t commit)
{
  uint64_t newest= newest_commit.load();
  while (newest < commit && !newest_commit.compare_exchange_weak(newest, commit)) {}
}

int commit_durably(uint64_t commit, ek_error *error)
{
  in_effect(commit);
  return ek_wait_durable(evenkeel_db, commit, (uint8_t) flush_at_commit, error);
}

/* Two-phase ids as bytes: the format, both lengths, both parts. */
static std::string xid_bytes(const XID *xid)
{
  std::string out;
  for (int i= 0; i < 4; i++)
    out.push_back((char)(xid->formatID >> (8 * i)));
  out.push_back((char) xid->gtrid_length);
  out.push_back((char) xid->bqual_length);
  out.append(xid->data, xid->gtrid_length + xid->bqual_length);
  return out;
}

static bool xid_from(const std::string &bytes, XID *xid)
{
  if (bytes.size() < 6)
    return false;
  const uchar *p= (const uchar *) bytes.data();
  const size_t parts= (size_t) p[4] + p[5];
  if (parts != bytes.size() - 6 || parts > XIDDATASIZE)
    return false;
  xid->null();
  xid->set(sint4korr(p), bytes.data() + 6, p[4], bytes.data() + 6 + p[4], p[5]);
  return true;
}

int evenkeel_prepare(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (!trx->txn || (!all && in_transaction(thd)))
    return 0;
  XID xid;
  thd_get_xid(thd, (MYSQL_XID *) &xid);
  trx->xid= xid_bytes(&xid);
  trx->by_user= thd->transaction->xid_state.is_explicit_XA();
  /* A replica that does not log what it applies: the binlog is the coordinator but is never called, so no one waits
     for the commits before this one, as `tc.log` and a commit in one phase do. */
  const bool in_binlog= thd_test_options(thd, OPTION_BIN_LOG);
  const bool is_unordered= !trx->by_user && !in_binlog;
  if (is_unordered)
  {
    if (thd->wait_for_prior_commit())
      return HA_ERR_INTERNAL_ERROR;
    replica_awaits_earlier(thd);
  }
  /* XA PREPARE of a transaction that has only locked keeps its locks until this connection decides or ends, as in
     InnoDB. The log has nothing of it: no other connection can decide it, and no restart finds it. */
  if (trx->by_user && !ek_has_changes(trx->txn))
  {
    trx->only_locks= true;
    return 0;
  }
  ek_error error;
  ek_txn *txn= trx->txn;
  ended(trx);
  const int done= ek_prepare(txn, ek_text(trx->xid), (uint8_t) flush_at_commit, &error);
  if (done < 0)
  {
    report("prepare", error);
    return raise_error(thd, error);
  }
  trx->prepared= done == 1;
  if (trx->prepared && trx->by_user)
    keep_changes(trx);
  if (trx->prepared && is_unordered)
    replica_has_prepared(thd, trx);
  return 0;
}

/* The ordered half: the transaction is in effect and visible. It never waits. `commit` reports a failure. */
void evenkeel_commit_ordered(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (trx->committed || (!all && in_transaction(thd)))
    return;
  ek_error &error= trx->commit_error;
  error.text[0]= 0;
  if (trx->prepared)
    trx->commit= ek_commit_prepared(evenkeel_db, ek_text(trx->xid), &error);
  else if (trx->txn)
  {
    ek_txn *txn= trx->txn;
    ended(trx);
    ek_commit(txn, &trx->commit, &error);
  }
  trx->commit_failed= error.text[0] != 0;
  if (trx->commit_failed)
    report("commit", error);
  else
  {
    date_changes(trx);
    if (trx->prepared && trx->by_user)
      end_changes(trx->xid, true);
  }
  /* At once, because the binlog asks for its checkpoint before the server calls the other half. */
  in_effect(trx->commit);
  trx->committed= true;
}

/* A rolled-back transaction must not return after a crash: a user's coordinator does not ask again. The server rolls
   back when its binlog failed. The binlog may hold the commit all the same, in a file that was written and not
   synced; the next start would then commit here what other engines no longer have. */
int rollback_prepared(Trx *trx, ek_error *error)
{
  if (trx->by_user)
    end_changes(trx->xid, false);
  const uint8_t durability= plant("RollbackNotSynced") ? 0 : (uint8_t) flush_at_commit;
  return ek_rollback_prepared(evenkeel_db, ek_text(trx->xid), durability, error);
}

/* The server's recovery takes decisions only from its binlog. The file of `tc.log`, the coordinator without a
   binlog, it reads but does not use (xarecover_handlerton): it rolls back all. */
static bool binlog_decides() { return opt_bin_log || plant("LogOfCoordinatorTrusted"); }

int evenkeel_commit(handlerton *hton, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (!all && in_transaction(thd))
  {
    statement_ends(trx);
    return 0;
  }
  const bool two_phases= trx->prepared;
  const bool ordered= trx->committed;
  if (!ordered)
  {
    if (!two_phases)
      replica_awaits_earlier(thd);
    else if (trx->place && plant("LaterOvertakes"))
      my_sleep(1000000);
    evenkeel_commit_ordered(hton, thd, all);
  }
  replica_has_decided(trx);
  thd_wakeup_subsequent_commits(thd, 0);
  const uint64_t commit= trx->commit;
  const bool failed= trx->commit_failed;
  trx->prepared= trx->committed= trx->commit_failed= false;
  trx->commit= 0;
  if (failed)
    return raise_error(thd, trx->commit_error);
  if (!commit)
    return 0;
  ek_error error;
  /* The binlog holds the decision if it has called the ordered half: no one waits for ours, which is synced within a
     second. With sql_log_bin=0, or on a replica without log_slave_updates, the binlog does not hold it. And the
     server's recovery decides nothing that has a user's XID, as in XA COMMIT ... ONE PHASE. */
  const bool is_in_binlog= ordered || plant("UnloggedDecidedByBinlog");
  const bool is_users= trx->by_user && !plant("OnePhaseDecidedByBinlog");
  if (two_phases && is_in_binlog && !is_users && binlog_decides())
  {
    if (ek_wait_durable(evenkeel_db, commit, 0, &error))
    {
      report("commit", error);
      warn_of_error(thd, error);
    }
    return 0;
  }
  if (commit_durably(commit, &error))
  {
    report("commit", error);
    return raise_error(thd, error);
  }
  return 0;
}

static void collect(void *context, ek_bytes xid)
{
  ((std::vector<std::string> *) context)->emplace_back((const char *) xid.ptr, xid.len);
}

/* The server calls this again as long as it fills the list: each id is returned once. */
int evenkeel_recover(handlerton *, XID *list, uint len)
{
  const Database_use use;
  if (!use)
    return 0;
  static std::vector<std::string> found;
  static size_t given= 0;
  if (given == 0)
  {
    found.clear();
    calling_back([] { ek_prepared(evenkeel_db, &found, callback<collect>); });
  }
  uint count= 0;
  while (count < len && given < found.size())
    if (xid_from(found[given++], &list[count]))
      count++;
  if (count < len)
    given= 0;
  return (int) count;
}

/* The server ignores the result of a decision by XID: raising an error keeps the XID. The server's recovery has no
   client. */
static int not_decided(const char *what, const ek_error &error)
{
  if (error.code == CODE_XidUnknown)
    return XAER_NOTA;
  report(what, error);
  if (THD *thd= current_thd)
    raise_error(thd, error);
  return XAER_RMERR;
}

/* Without the engine's files it is unknown whether the engine has prepared something under the XID. */
static int decided_without_us()
{
  if (THD *thd= current_thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "EVENKEEL is not open: a transaction that it has prepared under this XID stays prepared");
  return XAER_NOTA;
}

int evenkeel_commit_by_xid(handlerton *, XID *xid)
{
  const Database_use use;
  if (!use)
    return decided_without_us();
  ek_error error;
  error.kind= EK_OK;
  const std::string id= xid_bytes(xid);
  std::vector<std::string> changed;
  calling_back([&] { ek_prepared_tables(evenkeel_db, ek_text(id), &changed, callback<collect>); });
  const uint64_t commit= ek_commit_prepared(evenkeel_db, ek_text(id), &error);
  if (error.kind != EK_OK)
    return not_decided("commit by XID", error);
  end_changes(id, true, changed);
  in_effect(commit);
  return ek_wait_durable(evenkeel_db, commit, 1, &error) ? not_decided("commit by XID", error) : XA_OK;
}

int evenkeel_rollback_by_xid(handlerton *, XID *xid)
{
  const Database_use use;
  if (!use)
    return decided_without_us();
  ek_error error;
  error.kind= EK_OK;
  const std::string id= xid_bytes(xid);
  const uint8_t durability= plant("RollbackByXidNotSynced") ? 0 : (uint8_t) flush_at_commit;
  const bool failed= ek_rollback_prepared(evenkeel_db, ek_text(id), durability, &error) != 0;
  if (failed && error.code == CODE_XidUnknown)
    return XAER_NOTA;
  end_changes(id, false);
  return failed ? not_decided("rollback by XID", error) : XA_OK;
}

/* Makes every commit that is in effect here durable: recovery then needs no binlog for them. */
static bool all_durable(const char *why)
{
  const Database_use use;
  ek_error error;
  const uint64_t commit= newest_commit.load();
  if (!use || !commit || !ek_wait_durable(evenkeel_db, commit, 1, &error))
    return true;
  report(why, error);
  return false;
}

/* The log can no longer be written, and it lacks commits that only the binlog knows. An orderly shutdown would mark
   the binlog complete; the next start would find these transactions prepared and refuse to go on, or roll them back.
   After a kill it commits them from the binlog. */
static void end_as_by_kill(const char *why)
{
  sql_print_error("EVENKEEL: %s: its log cannot be written and lacks commits that the binlog has. The server "
                  "ends now as by kill -9, and the next start recovers them", why);
  kill(getpid(), SIGKILL);
}

void evenkeel_checkpoint_request(void *cookie)
{
  /* The server is not notified: the binlog then keeps what we need after a restart. RESET MASTER would wait for us
     and hold up every commit until then, and no KILL ends it. */
  if (!all_durable("checkpoint of the binlog") && binlog_decides())
  {
    if (current_thd && thd_sql_command(current_thd) == SQLCOM_RESET)
      end_as_by_kill("RESET MASTER");
    return;
  }
  commit_checkpoint_notify_ha(cookie);
}

void evenkeel_pre_shutdown()
{
  if (binlog_decides() && !all_durable("shutdown"))
    end_as_by_kill("shutdown");
}

bool evenkeel_flush_logs(handlerton *) { return !all_durable("FLUSH LOGS"); }
