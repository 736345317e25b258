/* The engine's C interface. crates/capi declares the same functions in Rust and documents each; a test of that crate
   compares the two. */
#ifndef EVENKEEL_CAPI_H
#define EVENKEEL_CAPI_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct ek_database ek_database;
typedef struct ek_txn ek_txn;
typedef struct ek_row ek_row;
typedef struct ek_long ek_long;
typedef struct ek_scan_handle ek_scan_handle;
typedef struct ek_canceller_handle ek_canceller_handle;
typedef struct ek_plan ek_plan;
typedef struct ek_build ek_build;

typedef struct { const uint8_t *ptr; size_t len; } ek_bytes;

enum { EK_NULL= 0, EK_INT= 1, EK_UINT= 2, EK_FLOAT= 3, EK_BYTES= 4 };
typedef struct { uint8_t kind; uint64_t bits; ek_bytes bytes; } ek_value;

enum ek_kind
{
  EK_OK= 0, EK_CONFLICT, EK_DEADLOCK, EK_LOCK_TIMEOUT, EK_DUPLICATE, EK_FULL, EK_READ_ONLY,
  EK_INVALID, EK_NOT_FOUND, EK_CORRUPT, EK_BUSY, EK_VERSION, EK_INTERNAL, EK_CANCELLED,
  EK_SETTING, EK_TOO_NEW, EK_IO
};
/* `code` counts the entries of crates/base/src/codes.rs from 0; errors.def has them. */
typedef struct { int32_t kind, code; char index[256]; char text[512]; } ek_error;

typedef struct
{
  int64_t (*weights)(uint16_t collation, uint32_t chars, ek_bytes value, uint8_t *out, size_t room);
  uint64_t (*bytes_max)(uint16_t collation, uint32_t chars, uint32_t bytes);
  int64_t (*checksum)(uint16_t collation);
} ek_collations;

typedef struct
{
  uint64_t memory_size, log_size;
  uint32_t page_size;
  uint8_t durability;
  const ek_collations *collations;
} ek_options;

/* The error of a code, without context, for tests that go through all codes. */
void ek_error_of_code(int32_t code, ek_error *error);

ek_database *ek_open(ek_bytes path, const ek_options *options, ek_error *error);
int32_t ek_close(ek_database *db, ek_error *error);
uint64_t ek_machine_memory(void);

enum { EK_NULLABLE= 1, EK_AUTO_INCREMENT= 2 };
typedef struct { ek_bytes name; uint8_t type_code, flags; uint32_t a, b; } ek_column;
typedef struct { uint16_t column, collation; uint32_t prefix; uint8_t desc; } ek_part;
typedef struct { ek_bytes name; const ek_part *parts; size_t parts_len; uint8_t unique; } ek_index;

typedef struct
{
  ek_bytes name, parent;
  const ek_bytes *columns, *parent_columns;
  size_t columns_len;
  uint8_t on_delete, on_update, may_await;
} ek_foreign;
enum ek_time_unit
{
  EK_UNIT_DAYS= 0, EK_UNIT_SECONDS, EK_UNIT_MILLISECONDS, EK_UNIT_MICROSECONDS, EK_UNIT_NANOSECONDS,
  EK_UNIT_PACKED_DAYS, EK_UNIT_PACKED_SECONDS, EK_UNIT_TIMESTAMP
};
typedef struct
{
  ek_bytes time, space;
  uint64_t width_s, retain_s;
  uint32_t slots;
  uint8_t unit;
} ek_chunking;
int32_t ek_create_table(const ek_database *db, ek_bytes name, const ek_column *columns,
                        size_t columns_len, const ek_part *primary, size_t primary_len,
                        const ek_index *indexes, size_t indexes_len, const ek_foreign *foreign,
                        size_t foreign_len, const ek_chunking *chunking, uint8_t temporary,
                        ek_error *error);
typedef struct
{
  ek_txn *txn;
  uint64_t lock_wait_ms;
  int32_t (*cancelled)(void *context);
  void *context;
  uint8_t leaves_children;
} ek_schema_wait;
int32_t ek_drop_table(const ek_database *db, ek_bytes name, const ek_schema_wait *wait,
                      ek_error *error);
typedef struct { ek_bytes from, to; } ek_rename;
int32_t ek_rename_table(const ek_database *db, ek_bytes from, ek_bytes to, ek_bytes replaced,
                        const ek_rename *foreign_keys, size_t foreign_keys_len,
                        const ek_schema_wait *wait, ek_error *error);
int32_t ek_check_replacement(const ek_database *db, ek_bytes old_table, ek_bytes new_table,
                             ek_error *error);
enum { EK_CHILD_NULLABLE= 1, EK_PARENT_NULLABLE= 2 };
typedef struct
{
  ek_bytes name, child, parent, parent_index;
  const ek_bytes *columns, *parent_columns;
  const uint8_t *nullable;
  size_t columns_len;
  uint8_t on_delete, on_update, is_awaiting;
} ek_foreign_key;
int32_t ek_foreign_keys(const ek_database *db, ek_bytes table, uint8_t to_it, void *context,
                        void (*each)(void *context, const ek_foreign_key *key), ek_error *error);
int32_t ek_add_foreign_keys(const ek_database *db, ek_bytes table, const ek_foreign *keys,
                            size_t keys_len, uint8_t validates, const ek_build *build,
                            ek_error *error);
int32_t ek_prove_foreign_keys(const ek_database *db, ek_bytes table, const ek_foreign *keys,
                              size_t keys_len, uint8_t validates, const ek_build *build,
                              ek_error *error);
int32_t ek_forget_foreign_keys(const ek_database *db, ek_bytes table, ek_error *error);
int32_t ek_is_referenced(const ek_database *db, ek_bytes table);
void ek_set_foreign_key_checks(ek_txn *txn, uint8_t on);
int32_t ek_truncate(const ek_database *db, ek_bytes name, const ek_schema_wait *wait,
                    ek_error *error);
typedef struct
{
  uint64_t number;
  int64_t from, to;
  uint64_t rows, bytes;
  uint32_t slot;
} ek_chunk;
int32_t ek_chunk_unit(const ek_database *db, ek_bytes table);
int32_t ek_chunks(const ek_database *db, ek_bytes table, void *context,
                  void (*each)(void *context, const ek_chunk *chunk), ek_error *error);
int64_t ek_drop_chunks(const ek_database *db, ek_bytes table, int64_t before,
                       const ek_schema_wait *wait, void *context,
                       void (*kept)(void *context, uint64_t chunk, uint64_t txn), ek_error *error);
int32_t ek_retain(const ek_database *db, ek_bytes table, uint64_t *units);
void ek_set_chunk_limit(ek_txn *txn, uint8_t on);
int32_t ek_readable_from(const ek_database *db, ek_bytes name, uint8_t now, ek_error *error);
int32_t ek_table_exists(const ek_database *db, ek_bytes name);
int32_t ek_is_clustered(const ek_database *db, ek_bytes name, ek_error *error);
int32_t ek_needs_rebuild(const ek_database *db, ek_bytes name, ek_error *error);
void ek_prepared(const ek_database *db, void *context, void (*each)(void *context, ek_bytes xid));
void ek_prepared_tables(const ek_database *db, ek_bytes xid, void *context,
                        void (*each)(void *context, ek_bytes table));
uint64_t ek_commit_prepared(const ek_database *db, ek_bytes xid, ek_error *error);
int32_t ek_rollback_prepared(const ek_database *db, ek_bytes xid, uint8_t durability,
                             ek_error *error);
int32_t ek_wait_durable(const ek_database *db, uint64_t commit, uint8_t durability_mode,
                        ek_error *error);
int32_t ek_move_numbers(const ek_database *db, ek_bytes table, uint64_t from, uint64_t to,
                        ek_error *error);
int32_t ek_pass_number(const ek_database *db, ek_bytes table, uint64_t number, ek_error *error);
uint64_t ek_next_number(const ek_database *db, ek_bytes table);
int32_t ek_restart_numbers(const ek_database *db, ek_bytes table, uint64_t next, ek_error *error);
/* Messages of the engine: level 1 error, 2 warning, 3 information. Called by any thread. */
void ek_messages(void (*take)(uint8_t level, ek_bytes text));
enum { EK_REPORT_NOTHING= 0, EK_REPORT_NEAREST= 1, EK_REPORT_ALL= 2 };
void ek_watch_waits(const ek_database *db, uint8_t (*asks)(uint64_t waiter),
                    void (*begins)(uint64_t waiter, const uint64_t *others, size_t len));
enum { EK_WAIT_LOG= 0, EK_WAIT_DEVICE= 1, EK_WAIT_OTHERS= 2 };
void ek_watch_threads(const ek_database *db, void (*waits)(uint8_t kind), void (*goes_on)(void));

enum { EK_READ_UNCOMMITTED= 0, EK_READ_COMMITTED= 1, EK_REPEATABLE_READ= 2, EK_SERIALIZABLE= 3 };
ek_txn *ek_begin(const ek_database *db, uint8_t isolation, uint64_t lock_wait_ms, ek_error *error);
void ek_set_snapshot_isolation(ek_txn *txn, uint8_t on);
int32_t ek_take_snapshot(ek_txn *txn, ek_error *error);
void ek_set_lock_wait(ek_txn *txn, uint64_t ms);
ek_canceller_handle *ek_canceller_new(void);
void ek_canceller_of(const ek_canceller_handle *canceller, const ek_txn *txn);
void ek_cancel(const ek_canceller_handle *canceller);
void ek_canceller_free(ek_canceller_handle *canceller);
int32_t ek_commit(ek_txn *txn, uint64_t *commit, ek_error *error);
int32_t ek_rollback(ek_txn *txn, ek_error *error);
int32_t ek_prepare(ek_txn *txn, ek_bytes xid, uint8_t durability, ek_error *error);
int32_t ek_is_ended(const ek_txn *txn);
int32_t ek_has_changes(const ek_txn *txn);
void ek_statement(ek_txn *txn, uint8_t begins);
int32_t ek_undo_statement(ek_txn *txn, ek_error *error);
void ek_set_tag(ek_txn *txn, uint64_t tag);
enum { EK_SAVEPOINT_SET= 0, EK_SAVEPOINT_ROLLBACK= 1, EK_SAVEPOINT_RELEASE= 2 };
int32_t ek_savepoint(ek_txn *txn, ek_bytes name, uint8_t what, ek_error *error);
int32_t ek_leave_tables(ek_txn *txn);
void ek_leave_table(ek_txn *txn, ek_bytes table);

typedef struct ek_table ek_table;
ek_table *ek_table_new(ek_bytes name);
void ek_table_free(ek_table *table);
int32_t ek_insert(ek_txn *txn, ek_table *table, const ek_value *row, size_t row_len,
                  ek_error *error);
ek_bytes ek_last_key(ek_txn *txn);
int32_t ek_update(ek_txn *txn, ek_table *table, ek_bytes key, const ek_row *read,
                  const uint16_t *columns, const ek_value *values, size_t len, ek_error *error);
int32_t ek_delete(ek_txn *txn, ek_table *table, ek_bytes key, const ek_row *read, ek_error *error);

enum { EK_LOCK_NONE= 0, EK_LOCK_SHARED= 1, EK_LOCK_EXCLUSIVE= 2, EK_LOCK_SKIP= 4 };
ek_row *ek_row_new(void);
void ek_row_free(ek_row *row);
void ek_row_clear(ek_row *row);
ek_plan *ek_plan_new(const uint32_t *columns, size_t len);
void ek_plan_free(ek_plan *plan);
int32_t ek_row_values(const ek_row *row, ek_plan *plan, ek_bytes *key, ek_value *values,
                      ek_error *error);
ek_long *ek_row_take(ek_row *row, uint32_t column);
void ek_long_free(ek_long *value);
int32_t ek_get_at(ek_txn *txn, ek_table *table, const ek_value *key, size_t len, ek_row *row,
                  ek_error *error);
int32_t ek_get(ek_txn *txn, ek_table *table, ek_bytes key, uint8_t lock, ek_row *row,
               ek_error *error);

enum { EK_UNBOUNDED= 0, EK_INCLUDED= 1, EK_EXCLUDED= 2 };
typedef struct { uint8_t kind; const ek_value *values; size_t len; } ek_bound;
enum { EK_SCAN_KEYS_ONLY= 1, EK_SCAN_BACKWARD= 2, EK_SCAN_PEEK= 4 };
ek_scan_handle *ek_scan(ek_txn *txn, ek_table *table, ek_bytes index, const ek_bound *lower,
                        const ek_bound *upper, uint8_t flags, ek_error *error);
int32_t ek_lock_range(ek_txn *txn, ek_table *table, ek_bytes index, const ek_bound *key,
                      ek_error *error);
ek_scan_handle *ek_scan_locked(ek_txn *txn, ek_table *table, ek_bytes index, const ek_bound *lower,
                               const ek_bound *upper, uint8_t flags, uint8_t lock,
                               ek_error *error);
void ek_scan_unlock(ek_scan_handle *scan);
int32_t ek_scan_next(ek_scan_handle *scan, ek_row *row, ek_error *error);
enum { EK_PUT_NUMBER= 0, EK_PUT_FLOAT= 1, EK_PUT_BYTES= 2, EK_PUT_CHARS= 3, EK_PUT_VARIABLE= 4 };
typedef struct
{
  uint32_t at, len, null_at;
  uint8_t null_bit, how, fill, len_bytes;
  const uint8_t *beneath_null;
} ek_put;
void ek_plan_put(ek_plan *plan, const ek_put *puts, size_t len);
int32_t ek_scan_read(ek_scan_handle *scan, ek_plan *plan, uint8_t *record, ek_bytes *key,
                     ek_error *error);
int32_t ek_get_read(ek_txn *txn, ek_table *table, const ek_value *key, size_t len, ek_plan *plan,
                    uint8_t *record, ek_row *row, ek_bytes *of, ek_error *error);
int32_t ek_scan_fetch_last(const ek_scan_handle *scan, ek_row *row, ek_error *error);
int32_t ek_scan_resume(ek_scan_handle *scan, ek_bytes key, ek_error *error);
int32_t ek_scan_fetch(const ek_scan_handle *scan, const ek_row *entry, ek_row *row,
                      ek_error *error);
void ek_scan_free(ek_scan_handle *scan);
int64_t ek_estimate(ek_txn *txn, ek_table *table, ek_bytes index, const ek_bound *lower,
                    const ek_bound *upper, ek_error *error);

ek_build *ek_build_new(uint64_t wait_ms);
void ek_build_free(ek_build *build);
void ek_build_cancel(const ek_build *build);
enum { EK_BUILD_IDLE= 0, EK_BUILD_WAITING, EK_BUILD_SCANNING, EK_BUILD_WRITING, EK_BUILD_CHECKING,
       EK_BUILD_DONE };
typedef struct
{
  int32_t phase;
  uint32_t done_ppm;
  uint64_t rows_done, rows_written, rows_total, left_s;
} ek_build_figures;
static const uint64_t EK_UNKNOWN_S= UINT64_MAX;
void ek_build_progress(const ek_build *build, ek_build_figures *to);
int32_t ek_build_wait(const ek_database *db, const ek_build *build, int32_t known, uint64_t ms);
void ek_build_duplicate(const ek_build *build, void *context,
                        void (*each)(void *context, ek_bytes table, ek_bytes key));
typedef struct { ek_bytes table; const ek_index *indexes; size_t indexes_len; } ek_new_indexes;
int32_t ek_add_indexes(const ek_database *db, const ek_new_indexes *tables, size_t tables_len,
                       const ek_build *build, ek_error *error);
typedef struct ek_copy ek_copy;
ek_copy *ek_copy_begin(const ek_database *db, ek_bytes table, uint8_t leaves_out,
                       const ek_build *build, ek_error *error);
int32_t ek_copy_row(ek_copy *copy, const ek_value *row, size_t row_len, ek_error *error);
uint64_t ek_copy_rows(const ek_copy *copy);
void ek_copy_late_indexes(const ek_copy *copy, void *context,
                          void (*each)(void *context, ek_bytes name));
int32_t ek_copy_finish(ek_copy *copy, ek_error *error);
void ek_copy_free(ek_copy *copy);
int32_t ek_forget_alters(const ek_database *db, ek_error *error);
typedef struct { ek_bytes name; uint32_t max; } ek_widen;
typedef struct { ek_column column; ek_value value; } ek_new_column;
typedef struct
{
  ek_bytes table;
  const ek_bytes *drop_indexes;
  size_t drop_indexes_len;
  const ek_rename *rename_indexes;
  size_t rename_indexes_len;
  const ek_bytes *drop_columns;
  size_t drop_columns_len;
  const ek_rename *rename_columns;
  size_t rename_columns_len;
  const ek_widen *widen_columns;
  size_t widen_columns_len;
  const ek_new_column *add_columns;
  size_t add_columns_len;
  const ek_bytes *drop_foreign_keys;
  size_t drop_foreign_keys_len;
  const ek_bytes *add_foreign_keys;
  size_t add_foreign_keys_len;
} ek_change;
ek_bytes ek_provisional(void);
int32_t ek_alter_tables(const ek_database *db, const ek_change *changes, size_t changes_len,
                        uint64_t mark, const ek_schema_wait *wait, ek_error *error);
int32_t ek_wait_unused(const ek_database *db, ek_bytes table, const ek_schema_wait *wait,
                       ek_error *error);
int32_t ek_wait_unchanged(const ek_database *db, ek_bytes table, const ek_schema_wait *wait,
                          ek_error *error);
int32_t ek_forget_mark(const ek_database *db, ek_bytes table, ek_error *error);
int32_t ek_may_widen(const ek_database *db, ek_bytes table, const ek_widen *columns,
                     size_t columns_len);
int32_t ek_column_of(const ek_database *db, ek_bytes table, ek_bytes column, ek_column *to);
int32_t ek_index_place(const ek_database *db, ek_bytes table, ek_bytes index);

int32_t ek_set(const ek_database *db, ek_bytes name, uint64_t value, ek_error *error);
void ek_figures(const ek_database *db, void *context,
                void (*each)(void *context, ek_bytes name, ek_bytes unit, uint64_t value));
void ek_waits(const ek_database *db, void *context,
              void (*each)(void *context, ek_bytes cause, uint64_t count, uint64_t over_1ms,
                           uint64_t us, uint64_t max_us));
typedef struct
{
  uint64_t visits, reads, read_ns;
} ek_costs;
void ek_costs_of_thread(ek_costs *to);
typedef struct
{
  uint32_t id, hidden_key;
  uint64_t rows_estimate, columns, row_formats, definition, mark, indexes, index_bytes, row_bytes;
} ek_table_info;
int32_t ek_table_figures(const ek_database *db, ek_bytes table, ek_table_info *to, ek_error *error);
int64_t ek_rows(const ek_database *db, ek_table *table, uint64_t *bytes, ek_error *error);
void ek_tables(const ek_database *db, void *context, void (*each)(void *context, ek_bytes name));
void ek_compactions(const ek_database *db, void *context,
               void (*each)(void *context, ek_bytes table, ek_bytes index, uint64_t runs,
                            uint64_t done, uint64_t bytes, uint8_t required));
int32_t ek_indexes(const ek_database *db, ek_bytes table, void *context,
                   void (*each)(void *context, ek_bytes name, uint8_t valid, uint64_t runs,
                                uint64_t entries, uint64_t bytes),
                   ek_error *error);
enum { EK_CHECK_PAGES= 0, EK_CHECK_ROWS, EK_CHECK_INDEXES };
int64_t ek_check_table(const ek_database *db, ek_bytes table, void *context,
                       void (*each)(void *context, ek_bytes problem),
                       int32_t (*cancelled)(void *context, int32_t stage, uint32_t done_ppm),
                       ek_error *error);
enum { EK_REPAIR_REBUILT= 0, EK_REPAIR_LOST, EK_REPAIR_PROBLEM, EK_REPAIR_ROWS };
typedef struct
{
  void *context;
  void (*each)(void *context, int32_t kind, ek_bytes line);
  void (*watch)(void *context, int32_t stage, uint32_t done_ppm);
} ek_repair_calls;
int64_t ek_repair_table(const ek_database *db, ek_bytes table, uint8_t gives_up_rows,
                        const ek_build *build, const ek_repair_calls *calls, ek_error *error);
void ek_txns(const ek_database *db, void *context,
             void (*each)(void *context, uint64_t id, uint8_t prepared, uint64_t operations,
                          ek_bytes xid, uint64_t waits_for, uint64_t tag));
void ek_locks(const ek_database *db, size_t limit, void *context,
              void (*each)(void *context, uint64_t txn, ek_bytes table, ek_bytes index,
                           uint8_t exclusive, uint8_t granted, uint8_t range, ek_bytes key));
int32_t ek_writes_stopped(const ek_database *db);
int32_t ek_analyze(const ek_database *db, ek_bytes table, const ek_schema_wait *wait,
                   ek_error *error);
uint32_t ek_rows_per_key(const ek_database *db, ek_bytes table, ek_bytes index, uint64_t *rows,
                         size_t len);
int64_t ek_count(ek_txn *txn, ek_bytes table, ek_error *error);
int32_t ek_checkpoint(const ek_database *db, ek_error *error);

typedef struct ek_backup ek_backup;
typedef struct
{
  int32_t phase;
  uint64_t bytes;
  uint64_t bytes_expected;
  uint64_t left;
  uint64_t end;
} ek_backup_figures;
enum
{
  EK_BACKUP_BEGINS,
  EK_BACKUP_PAGES,
  EK_BACKUP_RUNS,
  EK_BACKUP_FOLLOWS,
  EK_BACKUP_LOG,
  EK_BACKUP_SYNC,
  EK_BACKUP_DONE
};
typedef struct
{
  uint64_t end;
  uint64_t bytes;
  uint64_t files;
} ek_backup_report;
ek_backup *ek_backup_new(void);
ek_backup *ek_backup_new_armed(void);
void ek_backup_hurry(const ek_backup *backup);
void ek_backup_end(const ek_backup *backup, ek_bytes note);
int32_t ek_backup_give_up(const ek_backup *backup);
void ek_backup_free(ek_backup *backup);
void ek_backup_cancel(const ek_backup *backup);
void ek_backup_progress(const ek_backup *backup, ek_backup_figures *to);
int32_t ek_backup_take(const ek_database *db, ek_bytes destination, ek_bytes base,
                       const ek_backup *backup, ek_backup_report *report, ek_error *error);

#ifdef __cplusplus
}
#endif
#endif
