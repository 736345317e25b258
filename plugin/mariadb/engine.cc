/* The plugin's entry: settings, opening and closing, transactions, two-phase commit. */
#include "engine.h"
#include "ha_evenkeel.h"
#include "layout.h"
#include <vector>

handlerton *evenkeel_hton;
ek_database *evenkeel_db;

static ulonglong memory_size, log_size;
static uint flush_at_commit;
static char *data_dir;
/* Guards every connection's canceller against KILL from another thread. */
static mysql_mutex_t cancel_mutex;
/* The newest commit that may not be durable yet. */
static std::atomic<uint64_t> newest_commit;

static MYSQL_SYSVAR_ULONGLONG(memory_size, memory_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "The one memory budget in bytes: pages, indexes, undo, log buffer. Default 256 MiB", nullptr,
  nullptr, 256ULL << 20, 16ULL << 20, 1ULL << 44, 1ULL << 20);
static MYSQL_SYSVAR_ULONGLONG(log_size, log_size, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "The greatest length of the log in bytes. Default 2 GiB", nullptr, nullptr, 2ULL << 30,
  32ULL << 20, 1ULL << 40, 1ULL << 20);
static MYSQL_SYSVAR_UINT(flush_at_commit, flush_at_commit, PLUGIN_VAR_RQCMDARG,
  "1: a commit is synced (default); 2: written, synced each second; 0: each second", nullptr,
  nullptr, 1, 0, 2, 1);
static MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
  "Directory of the tables, below the server's data directory unless absolute", nullptr, nullptr,
  "#evenkeel");
static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
  "Seconds to wait for a lock of a row before error 1205", nullptr, nullptr, 50, 0, 1073741824, 0);

static st_mysql_sys_var *settings[]= {MYSQL_SYSVAR(memory_size), MYSQL_SYSVAR(log_size),
  MYSQL_SYSVAR(flush_at_commit), MYSQL_SYSVAR(data_dir), MYSQL_SYSVAR(lock_wait_timeout), nullptr};

static void report(const char *what, const ek_error &error)
{
  sql_print_error("EVENKEEL: %s: %s", what, error.text);
}

std::string table_name(const char *path)
{
  return strncmp(path, "./", 2) == 0 ? path + 2 : path;
}

static uint64_t lock_wait_ms(THD *thd)
{
  const ulong server= thd->variables.lock_wait_timeout;
  return 1000ULL * MY_MIN(THDVAR(thd, lock_wait_timeout), server);
}

static bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

Trx *trx_of(THD *thd)
{
  Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
  if (!trx)
  {
    trx= new Trx;
    thd_set_ha_data(thd, evenkeel_hton, trx);
  }
  return trx;
}

/* X/Open's codes for what became of a transaction. */
enum { XA_OK= 0, XAER_RMERR= -3, XAER_NOTA= -4 };

static const std::string statement_mark= "#statement";

ek_txn *begun(THD *thd, ek_error *error)
{
  Trx *trx= trx_of(thd);
  if (!trx->txn)
  {
    static const uint8_t levels[]= {EK_READ_UNCOMMITTED, EK_READ_COMMITTED, EK_REPEATABLE_READ,
                                    EK_SERIALIZABLE};
    trx->isolation= levels[thd_tx_isolation(thd)];
    /* A statement alone that changes rows holds no snapshot: it waits, and never conflicts. */
    if (trx->isolation == EK_REPEATABLE_READ && !in_transaction(thd) && trx->statement_locks)
      trx->isolation= EK_READ_COMMITTED;
    trx->txn= ek_begin(evenkeel_db, trx->isolation, lock_wait_ms(thd), error);
    if (!trx->txn)
      return nullptr;
    trx->prepared= trx->committed= false;
    trx->commit= 0;
    mysql_mutex_lock(&cancel_mutex);
    trx->canceller= ek_canceller(trx->txn);
    mysql_mutex_unlock(&cancel_mutex);
    if (ek_savepoint(trx->txn, ek_text(statement_mark), EK_SAVEPOINT_SET, error))
      return nullptr;
  }
  return trx->txn;
}

static void ended(Trx *trx)
{
  trx->txn= nullptr;
  mysql_mutex_lock(&cancel_mutex);
  if (trx->canceller)
    ek_canceller_free(trx->canceller);
  trx->canceller= nullptr;
  mysql_mutex_unlock(&cancel_mutex);
}

void statement_enters(THD *thd, bool locks)
{
  Trx *trx= trx_of(thd);
  if (trx->tables_locked++ == 0)
  {
    trx->statement_locks= false;
    if (trx->txn)
    {
      ek_error error;
      ek_set_lock_wait(trx->txn, lock_wait_ms(thd));
      ek_savepoint(trx->txn, ek_text(statement_mark), EK_SAVEPOINT_SET, &error);
    }
  }
  trx->statement_locks|= locks;
  trans_register_ha(thd, false, evenkeel_hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, evenkeel_hton, 0);
}

void statement_leaves(THD *thd)
{
  Trx *trx= trx_of(thd);
  if (trx->tables_locked > 0)
    trx->tables_locked--;
}

int handler_error(THD *thd, const ek_error &error)
{
  switch (error.kind)
  {
  case EK_CONFLICT: return HA_ERR_RECORD_CHANGED;
  case EK_DEADLOCK:
    thd->mark_transaction_to_rollback(true);
    return HA_ERR_LOCK_DEADLOCK;
  case EK_LOCK_TIMEOUT:
    thd->mark_transaction_to_rollback(false);
    return HA_ERR_LOCK_WAIT_TIMEOUT;
  case EK_DUPLICATE: return HA_ERR_FOUND_DUPP_KEY;
  case EK_FULL: return HA_ERR_RECORD_FILE_FULL;
  case EK_READ_ONLY: return HA_ERR_TABLE_READONLY;
  case EK_CORRUPT:
    sql_print_error("EVENKEEL: %s", error.text);
    return HA_ERR_CRASHED;
  case EK_CANCELLED: return HA_ERR_ABORTED_BY_USER;
  default:
    my_printf_error(ER_GET_ERRMSG, "EVENKEEL: %s", MYF(0), error.text);
    return HA_ERR_GENERIC;
  }
}

/* Two-phase ids as bytes: format, the two lengths, both parts. */
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

static int evenkeel_prepare(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (!trx->txn || (!all && in_transaction(thd)))
    return 0;
  XID xid;
  thd_get_xid(thd, (MYSQL_XID *) &xid);
  trx->xid= xid_bytes(&xid);
  ek_error error;
  ek_txn *txn= trx->txn;
  ended(trx);
  if (ek_prepare(txn, ek_text(trx->xid), &error))
  {
    report("prepare", error);
    return handler_error(thd, error);
  }
  trx->prepared= true;
  return 0;
}

/* The ordered half: in effect, visible; never waits, never fails. */
static void evenkeel_commit_ordered(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (trx->committed || (!all && in_transaction(thd)))
    return;
  ek_error error;
  error.text[0]= 0;
  if (trx->prepared)
    trx->commit= ek_commit_prepared(evenkeel_db, ek_text(trx->xid), &error);
  else if (trx->txn)
  {
    ek_txn *txn= trx->txn;
    ended(trx);
    ek_commit(txn, &trx->commit, &error);
  }
  if (error.text[0])
    report("commit", error);
  trx->committed= true;
}

static int evenkeel_commit(handlerton *hton, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  if (!all && in_transaction(thd))
    return 0;
  const bool two_phases= trx->prepared;
  const bool ordered= trx->committed;
  if (!ordered)
    evenkeel_commit_ordered(hton, thd, all);
  thd_wakeup_subsequent_commits(thd, 0);
  const uint64_t commit= trx->commit;
  trx->prepared= trx->committed= false;
  trx->commit= 0;
  if (!commit)
    return 0;
  uint64_t newest= newest_commit.load();
  while (newest < commit && !newest_commit.compare_exchange_weak(newest, commit)) {}
  /* The binlog has the decision: its checkpoint makes ours durable later. */
  if (two_phases && ordered)
    return 0;
  ek_error error;
  if (ek_wait_durable(evenkeel_db, commit, (uint8_t) flush_at_commit, &error))
  {
    report("commit", error);
    return handler_error(thd, error);
  }
  return 0;
}

static int evenkeel_rollback(handlerton *, THD *thd, bool all)
{
  Trx *trx= trx_of(thd);
  ek_error error;
  int failed= 0;
  if (all || !in_transaction(thd))
  {
    if (trx->prepared)
      failed= ek_rollback_prepared(evenkeel_db, ek_text(trx->xid), &error);
    else if (trx->txn)
    {
      ek_txn *txn= trx->txn;
      ended(trx);
      failed= ek_rollback(txn, &error);
    }
    trx->prepared= trx->committed= false;
    thd_wakeup_subsequent_commits(thd, 1);
  }
  else if (trx->txn)
    failed= ek_savepoint(trx->txn, ek_text(statement_mark), EK_SAVEPOINT_ROLLBACK, &error);
  if (!failed)
    return 0;
  report("rollback", error);
  return HA_ERR_ROLLBACK;
}

/* Savepoints have the address of the server's record of them as their name. */
static int savepoint(THD *thd, void *sv, uint8_t what)
{
  Trx *trx= trx_of(thd);
  ek_error error;
  ek_txn *txn= begun(thd, &error);
  if (!txn)
    return handler_error(thd, error);
  char name[32];
  snprintf(name, sizeof name, "%p", sv);
  if (ek_savepoint(trx->txn, ek_text(name), what, &error))
    return handler_error(thd, error);
  return 0;
}

static int evenkeel_savepoint_set(handlerton *, THD *thd, void *sv)
{
  return savepoint(thd, sv, EK_SAVEPOINT_SET);
}

static int evenkeel_savepoint_rollback(handlerton *, THD *thd, void *sv)
{
  return savepoint(thd, sv, EK_SAVEPOINT_ROLLBACK);
}

static int evenkeel_savepoint_release(handlerton *, THD *thd, void *sv)
{
  return savepoint(thd, sv, EK_SAVEPOINT_RELEASE);
}

static bool evenkeel_savepoint_can_release_mdl(handlerton *, THD *) { return true; }

static int evenkeel_start_consistent_snapshot(handlerton *, THD *thd)
{
  ek_error error;
  ek_txn *txn= begun(thd, &error);
  if (!txn || ek_take_snapshot(txn, &error))
    return handler_error(thd, error);
  trans_register_ha(thd, true, evenkeel_hton, 0);
  return 0;
}

static int evenkeel_close_connection(handlerton *, THD *thd)
{
  Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
  if (!trx)
    return 0;
  if (trx->txn)
  {
    ek_error error;
    ek_txn *txn= trx->txn;
    ended(trx);
    ek_rollback(txn, &error);
  }
  mysql_mutex_lock(&cancel_mutex);
  thd_set_ha_data(thd, evenkeel_hton, nullptr);
  mysql_mutex_unlock(&cancel_mutex);
  delete trx;
  return 0;
}

static void evenkeel_kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  mysql_mutex_lock(&cancel_mutex);
  Trx *trx= (Trx *) thd_get_ha_data(thd, evenkeel_hton);
  if (trx && trx->canceller)
    ek_cancel(trx->canceller);
  mysql_mutex_unlock(&cancel_mutex);
}

static void collect(void *context, ek_bytes xid)
{
  ((std::vector<std::string> *) context)->emplace_back((const char *) xid.ptr, xid.len);
}

/* Called again as long as it fills the list: each id is given once. */
static int evenkeel_recover(handlerton *, XID *list, uint len)
{
  static std::vector<std::string> found;
  static size_t given= 0;
  if (given == 0)
  {
    found.clear();
    ek_prepared(evenkeel_db, &found, collect);
  }
  uint count= 0;
  while (count < len && given < found.size())
    if (xid_from(found[given++], &list[count]))
      count++;
  if (count < len)
    given= 0;
  return (int) count;
}

static int evenkeel_commit_by_xid(handlerton *, XID *xid)
{
  ek_error error;
  error.kind= EK_OK;
  const std::string id= xid_bytes(xid);
  const uint64_t commit= ek_commit_prepared(evenkeel_db, ek_text(id), &error);
  if (error.kind != EK_OK)
    return error.kind == EK_NOT_FOUND ? XAER_NOTA : XAER_RMERR;
  return ek_wait_durable(evenkeel_db, commit, 1, &error) ? XAER_RMERR : XA_OK;
}

static int evenkeel_rollback_by_xid(handlerton *, XID *xid)
{
  ek_error error;
  const std::string id= xid_bytes(xid);
  if (ek_rollback_prepared(evenkeel_db, ek_text(id), &error))
    return error.kind == EK_NOT_FOUND ? XAER_NOTA : XAER_RMERR;
  return XA_OK;
}

static void evenkeel_checkpoint_request(void *cookie)
{
  ek_error error;
  const uint64_t commit= newest_commit.load();
  if (commit && ek_wait_durable(evenkeel_db, commit, 1, &error))
  {
    /* Never notified: the binlog keeps what we may need after a restart. */
    report("checkpoint of the binlog", error);
    return;
  }
  commit_checkpoint_notify_ha(cookie);
}

static bool evenkeel_flush_logs(handlerton *)
{
  ek_error error;
  const uint64_t commit= newest_commit.load();
  return commit && ek_wait_durable(evenkeel_db, commit, 1, &error);
}

static int evenkeel_drop_table(handlerton *, const char *path)
{
  const std::string name= table_name(path);
  ek_error error;
  if (!ek_drop_table(evenkeel_db, ek_text(name), &error))
    return 0;
  if (error.kind == EK_NOT_FOUND)
    return HA_ERR_NO_SUCH_TABLE;
  report("drop table", error);
  return HA_ERR_GENERIC;
}

static handler *evenkeel_create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_evenkeel(hton, share);
}

static int evenkeel_close(handlerton *, enum ha_panic_function)
{
  if (!evenkeel_db)
    return 0;
  ek_error error;
  ek_database *db= evenkeel_db;
  evenkeel_db= nullptr;
  if (ek_close(db, &error))
    report("close", error);
  return 0;
}

static const char *no_files[]= {nullptr};

static int evenkeel_init(void *p)
{
  if (const char *mismatch= layout_mismatch(current_thd))
  {
    sql_print_error("EVENKEEL: not loaded: %s: rebuild the plugin for this server", mismatch);
    return 1;
  }
  mysql_mutex_init(0, &cancel_mutex, MY_MUTEX_INIT_FAST);
  ek_options options= {memory_size, log_size, 0, (uint8_t) flush_at_commit};
  ek_error error;
  evenkeel_db= ek_open(ek_text(data_dir), &options, &error);
  if (!evenkeel_db)
  {
    report("open", error);
    return 1;
  }
  evenkeel_hton= (handlerton *) p;
  handlerton *h= evenkeel_hton;
  h->create= evenkeel_create_handler;
  h->flags= HTON_SUPPORTS_EXTENDED_KEYS;
  h->commit= evenkeel_commit;
  h->rollback= evenkeel_rollback;
  h->prepare= evenkeel_prepare;
  h->recover= evenkeel_recover;
  h->commit_by_xid= evenkeel_commit_by_xid;
  h->rollback_by_xid= evenkeel_rollback_by_xid;
  h->commit_ordered= evenkeel_commit_ordered;
  h->commit_checkpoint_request= evenkeel_checkpoint_request;
  h->savepoint_offset= 1;
  h->savepoint_set= evenkeel_savepoint_set;
  h->savepoint_rollback= evenkeel_savepoint_rollback;
  h->savepoint_release= evenkeel_savepoint_release;
  h->savepoint_rollback_can_release_mdl= evenkeel_savepoint_can_release_mdl;
  h->start_consistent_snapshot= evenkeel_start_consistent_snapshot;
  h->close_connection= evenkeel_close_connection;
  h->kill_query= evenkeel_kill_query;
  h->flush_logs= evenkeel_flush_logs;
  h->drop_table= evenkeel_drop_table;
  h->panic= evenkeel_close;
  h->tablefile_extensions= no_files;
  return 0;
}

static int evenkeel_deinit(void *)
{
  evenkeel_close(nullptr, HA_PANIC_CLOSE);
  mysql_mutex_destroy(&cancel_mutex);
  return 0;
}

static st_mysql_storage_engine engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

maria_declare_plugin(evenkeel)
{
  MYSQL_STORAGE_ENGINE_PLUGIN, &engine, "EVENKEEL", "The Evenkeel authors",
  "Transactional tables that keep their rate while indexes are kept up", PLUGIN_LICENSE_GPL,
  evenkeel_init, evenkeel_deinit, 0x0001, nullptr, settings, "0.1",
  MariaDB_PLUGIN_MATURITY_BETA
}
maria_declare_plugin_end;
