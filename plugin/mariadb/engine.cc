/* The plugin's entry points: opening and closing the database, and what the server calls. */
#include "engine.h"
#include "alter.h"
#include "backup.h"
#include "chunks.h"
#include "collation.h"
#include "entry.h"
#include "fault_injection.h"
#include "foreign.h"
#include "guarded.h"
#include "last_change.h"
#include "layout.h"
#include "retention.h"
#include "library.h"
#include "schema_tables.h"
#include "settings.h"
#include "status.h"
#include "transaction.h"
#include "two_phase.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <vector>
#include <my_dir.h>
#include <mysql/plugin_function.h>

handlerton *evenkeel_hton;
ek_database *evenkeel_db;
/* The reason why there is no database. */
static const char *const UNINSTALLED= "the plugin is being uninstalled";
static char not_open_why[512];

/* Guards the users of the database that have no table open. */
static std::mutex uses_mutex;
static std::condition_variable uses_ended;
/* The server has finished or taken back the statements that a crash interrupted. */
static std::atomic<bool> is_ddl_recovered{false};
static size_t uses;
static bool is_closing;

static bool begin_use() noexcept
{
  std::lock_guard<std::mutex> guard(uses_mutex);
  if (!evenkeel_db || is_closing)
    return false;
  uses++;
  return true;
}

Database_use::Database_use() noexcept : m_is_open(begin_use()) {}

Database_use::~Database_use()
{
  if (!m_is_open)
    return;
  std::lock_guard<std::mutex> guard(uses_mutex);
  if (--uses == 0 && is_closing)
    uses_ended.notify_all();
}

/* Returns the database if it has no users any more; null if there is none. */
static ek_database *last_use()
{
  std::unique_lock<std::mutex> guard(uses_mutex);
  is_closing= true;
  if (!plant("UsesNotAwaited"))
    uses_ended.wait(guard, [] { return uses == 0; });
  return std::exchange(evenkeel_db, nullptr);
}

static void opened(ek_database *db)
{
  std::lock_guard<std::mutex> guard(uses_mutex);
  evenkeel_db= db;
  is_closing= false;
  strmake_buf(not_open_why, UNINSTALLED);
}

void report(const char *what, const ek_error &error)
{
  sql_print_error("EVENKEEL: %s: %s", what, error.text);
}

/* The engine's messages to its administrator go to the server's error log. */
static void message(uint8_t level, ek_bytes text)
{
  const int len= (int) text.len;
  const char *said= (const char *) text.ptr;
  if (level == 1)
    sql_print_error("EVENKEEL: %.*s", len, said);
  else if (level == 2)
    sql_print_warning("EVENKEEL: %.*s", len, said);
  else
    sql_print_information("EVENKEEL: %.*s", len, said);
}

std::string table_name(const char *path)
{
  return strncmp(path, "./", 2) == 0 ? path + 2 : path;
}

int not_open()
{
  my_printf_error(ER_GET_ERRMSG, "EVENKEEL: its tables cannot be used, because the engine's files are damaged, "
                  "missing or unreadable (see the server's log): %s", MYF(0), not_open_why);
  return HA_ERR_CRASHED;
}

void warn_not_open(THD *thd)
{
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "EVENKEEL: the engine is not open: %s",
                      not_open_why);
}

/* True if a table may belong to the engine, as far as is known without its files. The server asks every engine to
   drop a table of which it has no definition. Parts of tables and tables of running statements have # in their names
   and need no definition of their own. */
static bool may_be_ours(const char *path)
{
  const char *slash= strrchr(path, '/');
  return strchr(slash ? slash : path, '#') ||
         access((std::string(path) + reg_ext).c_str(), F_OK) == 0;
}

/* The database is open. */
static int drop_table(const char *path)
{
  const std::string name= table_name(path);
  THD *thd= current_thd;
  ek_schema_wait wait= schema_wait(thd);
  /* The server's recovery drops a table that an ALTER replaces before the copy gets its name. */
  if (!is_ddl_recovered || drops_children_too(thd, name))
    wait.leaves_children= 1;
  ek_error error;
  if (!ek_drop_table(evenkeel_db, ek_text(name), &wait, &error))
  {
    drop_last_change(name);
    return 0;
  }
  if (error.code == CODE_TableMissing)
    return HA_ERR_NO_SUCH_TABLE;
  /* InnoDB's error for a table that other tables refer to, which does not say which tables they are. */
  if (error.code == CODE_ForeignKeyNeeds && thd)
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_ROW_IS_REFERENCED_2, "EVENKEEL: %s", error.text);
    error.code= CODE_RowReferenced;
    error.index[0]= 0;
  }
  else
    report("drop table", error);
  return handler_error(thd, error);
}

static int evenkeel_drop_table(handlerton *, const char *path)
{
  const Database_use use;
  if (!use)
    return may_be_ours(path) ? not_open() : HA_ERR_NO_SUCH_TABLE;
  return drop_table(path);
}

static bool begins_with(const std::string &s, const char *with) { return s.rfind(with, 0) == 0; }

static void add_table(void *context, ek_bytes name)
{
  static_cast<std::vector<std::string> *>(context)->emplace_back((const char *) name.ptr, name.len);
}

/* After the last DROP of DROP DATABASE: removes tables of which the server has no definition. Somebody may have
   removed the definition; the tables would stay for ever and block others of their name. */
static void evenkeel_drop_database(handlerton *, char *path)
{
  const Database_use use;
  if (!use)
    return;
  /* The directory, with a / at its end. */
  const std::string database= table_name(path);
  std::vector<std::string> tables;
  calling_back([&] { ek_tables(evenkeel_db, &tables, callback<add_table>); });
  for (const std::string &table : tables)
    if (database.back() == '/' && begins_with(table, database.c_str()))
    {
      sql_print_information("EVENKEEL: dropping table %s of a database that is dropped, which has no "
                            "definition", table.c_str());
      drop_table(table.c_str());
    }
}

static handler *evenkeel_create_handler(handlerton *hton, TABLE_SHARE *share, MEM_ROOT *root)
{
  return new (root) ha_guarded(hton, share);
}

static bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

/* True if all partitions that a .par file names belong to this engine. The server's ha_partition writes the file:
   words of four bytes whose sum without carry is 0, of which the first is the number of words and the third the
   number of partitions; then one byte with the engine of each partition. */
static bool is_par_of_ours(const std::string &path)
{
  const size_t number_at= 8, engines_at= 12;
  std::vector<uchar> file(1 << 20);
  FILE *from= fopen(path.c_str(), "rb");
  if (!from)
    return false;
  file.resize(fread(file.data(), 1, file.size(), from));
  fclose(from);
  if (file.size() < engines_at)
    return false;
  const size_t words= uint4korr(file.data()), partitions= uint4korr(file.data() + number_at);
  if (words > file.size() / 4 || partitions == 0 || engines_at + partitions > words * 4)
    return false;
  uint32 sum= 0;
  for (size_t i= 0; i < words; i++)
    sum^= uint4korr(file.data() + 4 * i);
  for (size_t i= 0; i < partitions; i++)
    if (file[engines_at + i] != (uchar) evenkeel_hton->db_type)
      return false;
  return sum == 0;
}

/* If an ALTER changes a partitioned table in place or drops partitions of it, a crash may leave the .par file of the
   new definition or of the backup. The server's recovery handles only the .frm next to it, and DROP DATABASE then
   finds its directory not empty. */
static void remove_par_files(const std::string &database)
{
  MY_DIR *files= my_dir(database.c_str(), MYF(MY_DONT_SORT));
  if (!files)
    return;
  for (size_t i= 0; i < files->number_of_files; i++)
  {
    const std::string name= files->dir_entry[i].name, path= database + "/" + name;
    const size_t dot= name.rfind('.');
    if (dot == std::string::npos || name.compare(dot, std::string::npos, ".par") ||
        (!begins_with(name, "#sql-alter-") && !begins_with(name, "#sql-backup-")) ||
        exists(database + "/" + name.substr(0, dot) + reg_ext) || !is_par_of_ours(path))
      continue;
    sql_print_information("EVENKEEL: removing file %s of a statement that did not end", path.c_str());
    if (unlink(path.c_str()))
      sql_print_error("EVENKEEL: file %s cannot be removed: %s", path.c_str(), strerror(errno));
  }
  my_dirend(files);
}

static std::string database_of(const std::string &table) { return table.substr(0, table.rfind('/')); }

static bool is_temporary(const std::string &table)
{
  const size_t slash= table.rfind('/');
  return table.compare(slash == std::string::npos ? 0 : slash + 1, 4, "#sql") == 0;
}

/* Databases with a partitioned table that lacks its .par file: the server ended among the renamings of an ALTER, and
   its recovery cannot finish without that file. The partitions that are left may be all that exists of the table. */
static std::set<std::string> unfinished_databases(const std::vector<std::string> &tables)
{
  std::set<std::string> found;
  for (const std::string &table : tables)
  {
    const size_t part= table.find("#P#");
    if (part != std::string::npos && !is_temporary(table) && !exists(table.substr(0, part) + ".par"))
      found.insert(database_of(table));
  }
  return found;
}

static void remove_par_files(const std::set<std::string> &unfinished)
{
  MY_DIR *databases= my_dir(".", MYF(MY_DONT_SORT | MY_WANT_STAT));
  if (!databases)
    return;
  for (size_t i= 0; i < databases->number_of_files; i++)
  {
    const fileinfo &entry= databases->dir_entry[i];
    /* Names of databases are encoded, so none begins with either character. */
    if (MY_S_ISDIR(entry.mystat->st_mode) && entry.name[0] != '#' && entry.name[0] != '.' &&
        !unfinished.count(entry.name))
      remove_par_files(std::string(entry.name));
  }
  my_dirend(databases);
}

/* The server has finished or taken back every statement that a crash interrupted, and no temporary table outlives a
   crash: tables that the server does not know are removed. */
static int evenkeel_ddl_recovered(handlerton *)
{
  is_ddl_recovered= true;
  const Database_use use;
  if (!use)
    return 0;
  ek_error error;
  std::vector<std::string> tables;
  calling_back([&] { ek_tables(evenkeel_db, &tables, callback<add_table>); });
  const std::set<std::string> unfinished= unfinished_databases(tables);
  for (const std::string &table : tables)
  {
    if (!is_temporary(table))
      continue;
    if (unfinished.count(database_of(table)))
    {
      sql_print_warning("EVENKEEL: keeping table %s of a statement that did not end: a partitioned table of its "
                        "database has no .par file", table.c_str());
      continue;
    }
    sql_print_information("EVENKEEL: dropping table %s of a statement that did not end",
                          table.c_str());
    if (ek_drop_table(evenkeel_db, ek_text(table), nullptr, &error))
      report("drop of a table that a statement left", error);
  }
  remove_par_files(unfinished);
  if (ek_forget_alters(evenkeel_db, &error))
    report("indexes of an ALTER that did not end", error);
  return 0;
}

static int evenkeel_close(handlerton *, enum ha_panic_function)
{
  ek_error error;
  disarm_backup();
  stop_retention();
  ek_database *db= last_use();
  if (db && ek_close(db, &error))
    report("close", error);
  return 0;
}

static const char *no_files[]= {nullptr};

static int evenkeel_init(void *p)
{
  if (layout_refused((const handlerton *) p))
    return 1;
  keep_uninstalled_plugins();
  ek_messages(callback<message>);
  ek_options options= {memory_size, log_size, page_size, (uint8_t) flush_at_commit,
                       &evenkeel_collations};
  ek_error error;
  ek_database *db= ek_open(ek_text(data_dir), &options, &error);
  if (!db)
  {
    report("open", error);
    /* EK_INVALID: the directory is not empty and has no superblock. EK_NOT_FOUND: a file of the database is missing. */
    if (error.kind != EK_CORRUPT && error.kind != EK_INVALID && error.kind != EK_NOT_FOUND &&
        error.kind != EK_IO)
      return 1;
    strmake_buf(not_open_why, error.text);
    sql_print_error("EVENKEEL: the server starts without the tables of this engine: each use of one is an "
                    "error, and no file in %s is changed. Stop the server, keep a copy of that directory, "
                    "examine it with `evenkeel check %s`, and restore the named file or the last backup of the "
                    "directory; without a backup `evenkeel salvage %s --sql FILE` saves all undamaged rows. Until "
                    "then allow no writes with the binlog on, because its transactions in these tables may be "
                    "undecided", data_dir, data_dir, data_dir);
  }
  else
  {
    ek_watch_waits(db, callback<transaction_asks>, callback<transaction_waits>);
    ek_watch_threads(db, callback<thread_waits>, callback<thread_goes_on>);
  }
  evenkeel_hton= (handlerton *) p;
  handlerton *h= evenkeel_hton;
  h->create= entry<evenkeel_create_handler>;
  h->flags= HTON_SUPPORTS_EXTENDED_KEYS;
  h->commit= entry<evenkeel_commit, HA_ERR_OUT_OF_MEM>;
  h->rollback= entry<evenkeel_rollback, HA_ERR_OUT_OF_MEM>;
  h->prepare= entry<evenkeel_prepare, HA_ERR_OUT_OF_MEM>;
  h->recover= entry<evenkeel_recover>;
  h->commit_by_xid= entry<evenkeel_commit_by_xid, XAER_RMERR>;
  h->rollback_by_xid= entry<evenkeel_rollback_by_xid, XAER_RMERR>;
  h->commit_ordered= entry<evenkeel_commit_ordered>;
  h->commit_checkpoint_request= entry<evenkeel_checkpoint_request>;
  h->savepoint_offset= savepoint_bytes;
  h->savepoint_set= entry<evenkeel_savepoint_set, HA_ERR_OUT_OF_MEM>;
  h->savepoint_rollback= entry<evenkeel_savepoint_rollback, HA_ERR_OUT_OF_MEM>;
  h->savepoint_release= entry<evenkeel_savepoint_release, HA_ERR_OUT_OF_MEM>;
  h->savepoint_rollback_can_release_mdl= entry<evenkeel_savepoint_can_release_mdl>;
  h->start_consistent_snapshot= entry<evenkeel_start_consistent_snapshot, HA_ERR_OUT_OF_MEM>;
  h->close_connection= entry<evenkeel_close_connection>;
  h->kill_query= entry<evenkeel_kill_query>;
  h->pre_shutdown= entry<evenkeel_pre_shutdown>;
  h->flush_logs= entry<evenkeel_flush_logs, true>;
  h->prepare_for_backup= entry<evenkeel_prepare_for_backup>;
  h->end_backup= entry<evenkeel_end_backup>;
  h->drop_table= entry<evenkeel_drop_table, HA_ERR_OUT_OF_MEM>;
  h->drop_database= entry<evenkeel_drop_database>;
  h->check_version= entry<evenkeel_check_version, 2>;
  h->signal_ddl_recovery_done= entry<evenkeel_ddl_recovered>;
  h->show_status= entry<evenkeel_show_status, true>;
  h->panic= entry<evenkeel_close>;
  h->tablefile_extensions= no_files;
  h->table_options= chunk_table_options;
  h->field_options= chunk_field_options;
  if (db)
  {
    opened(db);
    allow_arming();
    start_retention();
  }
  return 0;
}

static int evenkeel_deinit(void *)
{
  evenkeel_close(nullptr, HA_PANIC_CLOSE);
  return 0;
}

static st_mysql_storage_engine engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
static st_mysql_information_schema schema= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

#define SCHEMA_TABLE(name, what, init) \
  { \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &schema, name, "The Evenkeel authors", what, \
    PLUGIN_LICENSE_GPL, entry<init, 1>, nullptr, 0x0001, nullptr, nullptr, "0.1", \
    MariaDB_PLUGIN_MATURITY_GAMMA \
  }

maria_declare_plugin(evenkeel)
{
  MYSQL_STORAGE_ENGINE_PLUGIN, &engine, "EVENKEEL", "The Evenkeel authors",
  "Transactional tables with a steady insert rate for many indexes", PLUGIN_LICENSE_GPL,
  entry<evenkeel_init, 1>, entry<evenkeel_deinit>, 0x0001, status_variables, settings, "0.1",
  MariaDB_PLUGIN_MATURITY_GAMMA
},
SCHEMA_TABLE("EVENKEEL_TABLES", "Tables of the engine", evenkeel_tables_init),
SCHEMA_TABLE("EVENKEEL_INDEXES", "Secondary indexes and their runs", evenkeel_indexes_init),
SCHEMA_TABLE("EVENKEEL_FOREIGN", "Foreign keys", evenkeel_foreign_init),
SCHEMA_TABLE("EVENKEEL_CHUNKS", "Chunks of chunked tables", evenkeel_chunks_init),
{
  MariaDB_FUNCTION_PLUGIN, &evenkeel_drop_chunks_function, "evenkeel_drop_chunks", "The Evenkeel authors",
  "Drops old chunks of a table", PLUGIN_LICENSE_GPL, entry<evenkeel_drop_chunks_init, 1>, nullptr, 0x0001, nullptr,
  nullptr, "0.1", MariaDB_PLUGIN_MATURITY_GAMMA
},
SCHEMA_TABLE("EVENKEEL_JOBS", "Background work under way", evenkeel_jobs_init),
SCHEMA_TABLE("EVENKEEL_WAITS", "Waits by cause", evenkeel_waits_init),
SCHEMA_TABLE("EVENKEEL_TRX", "Transactions that have changed or locked rows", evenkeel_trx_init),
SCHEMA_TABLE("EVENKEEL_LOCKS", "Locks on keys and ranges", evenkeel_locks_init)
maria_declare_plugin_end;
