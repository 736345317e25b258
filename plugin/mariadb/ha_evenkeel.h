/* A table in use by a statement. */
#ifndef HA_EVENKEEL_H
#define HA_EVENKEEL_H
#include "columns.h"
#include "engine.h"
#include "last_change.h"
#include "transaction.h"
#include <list>
#include <memory>
#include <string>
#include <vector>

class Build;
class Null_watch;

/* Counts the engine's work for ANALYZE and the slow log while it lives. Nothing is counted where `to` is null. */
class Measured
{
public:
  explicit Measured(ha_handler_stats *to) : m_to(to)
  {
    if (unlikely(m_to != nullptr))
      ek_costs_of_thread(&m_before);
  }
  ~Measured()
  {
    if (unlikely(m_to != nullptr))
      add();
  }

private:
  void add();

  ha_handler_stats *m_to;
  ek_costs m_before;
};

/* The part of a table that the server's cost model counts as one block. It is InnoDB's page size, because users know
   plans by InnoDB's costs; the engine's pages are at least a quarter of it. */
static const uint COST_BLOCK_BYTES= 16384;

class ha_evenkeel : public handler
{
public:
  ha_evenkeel(handlerton *hton, TABLE_SHARE *share);
  ~ha_evenkeel() override;

  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return 64; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  uint lock_count() const override { return 0; }
  void print_error(int error, myf flags) override;
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }

  int open(const char *name, int mode, uint test) override;
  int close() override;
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  void start_bulk_insert(ha_rows rows, uint) override { m_expected_rows= rows; }
  int delete_all_rows() override { return HA_ERR_WRONG_COMMAND; }

  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered,
                                                             Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;
  ulonglong table_version() const override;
  bool can_convert_nocopy(const Field &field, const Column_definition &now) const override;
  Compare_keys compare_key_parts(const Field &was, const Column_definition &now,
                                 const KEY_PART_INFO &before,
                                 const KEY_PART_INFO &after) const override;

  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *to) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *to) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  bool get_error_message(int error, String *text) override;

  int check(THD *thd, HA_CHECK_OPT *options) override;
  int check_for_upgrade(HA_CHECK_OPT *) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  int repair(THD *thd, HA_CHECK_OPT *options) override;

  int write_row(const uchar *record) override;
  int update_row(const uchar *old_record, const uchar *new_record) override;
  int delete_row(const uchar *record) override;

  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *record) override;
  int rnd_pos(uchar *record, uchar *position) override;
  int rnd_pos_by_record(uchar *record) override;
  void position(const uchar *record) override;

  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *record, const uchar *key, key_part_map parts,
                     enum ha_rkey_function flag) override;
  int read_range_first(const key_range *start, const key_range *end, bool equal,
                       bool sorted) override;
  int index_next(uchar *record) override;
  int index_next_same(uchar *record, const uchar *key, uint key_len) override;
  int index_prev(uchar *record) override;
  int index_first(uchar *record) override;
  int index_last(uchar *record) override;
  ha_rows records() override;
  ha_rows records_in_range(uint index, const key_range *min, const key_range *max,
                           page_range *pages) override;
  const key_map *keys_to_use_for_scanning() override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;

  handler *clone(const char *name, MEM_ROOT *root) override;
  Item *idx_cond_push(uint index, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int multi_range_read_init(RANGE_SEQ_IF *ranges, void *parameter, uint count, uint mode,
                            HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF *ranges, void *parameter,
                                      uint count, uint *bytes, uint *flags,
                                      Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint index, uint count, uint keys, uint parts, uint *bytes,
                                uint *flags, Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;

  int info(uint what) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  int extra(enum ha_extra_function what) override;
  int reset() override;
  int external_lock(THD *thd, int lock_type) override;
  void init_table_handle_for_HANDLER() override;
  int start_stmt(THD *thd, thr_lock_type lock_type) override;
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override { return m_peeked; }
  void unlock_row() override;
  void update_create_info(HA_CREATE_INFO *info) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                          ulonglong *first, ulonglong *given) override;
  int reset_auto_increment(ulonglong value) override;

private:
  typedef std::vector<ek_value> Values;
  struct Change;
  struct Fill;
  /* A prefix of the parts of a key, as a bound. */
  struct Bound
  {
    uint8_t kind= EK_UNBOUNDED;
    Values values;
    ek_bound get() const { return {kind, values.data(), values.size()}; }
  };

  int fail(const ek_error &error);
  bool checks_in_order() const;
  bool checks_before_writing() const;
  int lock_checked(const Bound &at);
  bool count_rows(bool looked_at, ek_error *error);
  void average_keys();
  time_t made_at() const;
  ek_bytes name() const { return ek_text(m_name); }
  ek_bytes index_name(uint index) const;
  bool is_primary(uint index) const { return index == table_share->primary_key; }
  bool is_clustered(uint index) const { return is_primary(index) && m_clustered; }
  void forget_primary_suffix();
  void end_open();
  Bound bound(uint8_t kind, const uchar *key, key_part_map parts) const;
  Bound range_end() const;
  void remember_prefix(const uchar *key, key_part_map parts);
  int open_scan(const Bound &lower, const Bound &upper, bool backward, bool may_peek= true);
  void close_scan();
  void clear_rows();
  int lock_duplicate(const uchar *record);
  void begin_copy(bool ignore);
  int copy_row(const Values &row);
  int end_copy();
  int copy_failed(Build *build);
  bool copied_row(const std::string &key);
  bool changes_primary(const std::vector<uint16_t> &columns) const;
  int next(uchar *record);
  int next_direct(uchar *record);
  int next_filled(uchar *record);
  int read_direct(uchar *record, Fill &plan);
  int get_direct(uchar *record, ek_txn *txn, const Values &key, ek_error *error);
  void free_longs();
  int fill(uchar *record, ek_row *row, bool key_only);
  bool is_read_whole() const;
  bool is_compared() const;
  bool is_planned(const Fill &plan);
  void plan_fill(Fill &plan, bool key_only);
  void plan_direct(Fill &plan);
  Fill &planned(bool key_only);
  void keep_key(const ek_bytes &key);
  bool key_holds(uint field) const;
  void note_partial();
  bool is_entry_enough() const;
  bool reads_entries() const;
  bool filters_entries() const;
#ifdef EVENKEEL_POISON
  void poison(uchar *record, const Fill &plan) const;
#endif
  int check_entry(uchar *record, bool *wanted);
  int ask_of_entry(bool *wanted);
  HANDLER_BUFFER *range_buffer(HANDLER_BUFFER *given, uint mode);
  int go_on(uchar *record, bool backward);
  int behind_prefix(int error, uchar *record, bool backward);
  int turn(uchar *record, bool backward);
  int go_on_from_end(uchar *record, bool backward);
  int stay_at_end();
  int placed(int error);
  int read_point(uchar *record, const uchar *key, key_part_map parts);
  bool is_whole_primary(key_part_map parts, enum ha_rkey_function flag) const;
  bool is_point(key_part_map parts, enum ha_rkey_function flag) const;
  ek_txn *transaction(ek_error *error);
  void end_own();
  int changed(bool row_read);
  void reads_lock(THD *thd);
  void leave_handler(THD *thd);
  bool is_copied_from(THD *thd, thr_lock_type type) const;
  void take_lock(THD *thd, thr_lock_type type);
  int begin_copied(ek_error *error);
  static uint8_t plain_read(THD *thd, thr_lock_type type);
  static uint8_t lock_of(THD *thd, thr_lock_type type);
  int pass_number();
  int number_written();
  int number_refused();
  int begin_numbers(const std::string &made, const HA_CREATE_INFO *info);
  const char *not_in_place(TABLE *altered, Alter_inplace_info *info);
  const char *plan_build(TABLE *altered, Alter_inplace_info *info, Build *build);
  std::vector<ha_evenkeel *> changed_together(const Alter_inplace_info *info);
  bool read_into(TABLE *altered, Alter_inplace_info *info, const std::string &key);
  bool watch_nulls(TABLE *altered, Alter_inplace_info *info);
  bool has_nulls(const Null_watch &watch);
  void report_build(TABLE *altered, Alter_inplace_info *info, Build *build);
  void plan_indexes(Alter_inplace_info *info, const Build *build, Change *change);
  void plan_columns(TABLE *altered, Alter_inplace_info *info, Change *change);
  bool loses_key_columns(Alter_inplace_info *info);
  bool changes_key_text(Alter_inplace_info *info);
  void raise_not_added(int failed, const std::string &key);
  bool apply(const std::list<Change> &changes, Alter_inplace_info *info, bool commit);
  void raise_numbers(ulonglong next);

  std::string m_name;
  /* The engine's table of that name, while the handler is open. */
  ek_table *m_table= nullptr;
  /* The path by which the handler was opened: a partition's path differs from its table's. */
  std::string m_path;
  /* Field number -> column, -1 for one that is not stored. */
  std::vector<int> m_columns;
  /* The filler column of a table that has only virtual columns, or -1. */
  int m_filler= -1;
  /* For each column of the engine: whether it is a stored column to the server. */
  std::vector<bool> m_stored;
  /* The plan by which row values are read, and the inputs from which it was made. */
  struct Fill
  {
    Fill()= default;
    ~Fill() { ek_plan_free(plan); }
    Fill(const Fill &)= delete;
    const TABLE *table= nullptr;
    bool is_keyread= false, is_compared= false, is_whole= false, has_blobs= false;
    /* The engine puts the columns into the record. */
    bool is_direct= false;
    uint index= 0;
    std::vector<my_bitmap_map> read, written;
    std::vector<std::pair<Field *, Column::How>> fields;
    std::vector<uint32_t> columns;
    ek_plan *plan= nullptr;
    std::vector<ek_value> values;
    /* For each field: whether its value is in the record that a row was put into. */
    std::vector<bool> filled;
  };
  /* One plan for whole rows and one for index entries; `m_fill` is the plan by which the last row was read. */
  Fill m_fills[2];
  Fill *m_fill= m_fills;
  /* Rows are stored in the order of the primary key. */
  bool m_clustered= true;
  /* The table is cut into chunks. */
  bool m_chunked= false;
  /* The engine checks unique keys in the server's order of keys. */
  bool m_in_order= true;
  ek_row *m_row= nullptr;
  /* The whole row that the server wants for an entry. */
  ek_row *m_whole_row= nullptr;
  ek_scan_handle *m_scan= nullptr;
  bool m_backward= false;
  /* The position from which `index_next` and `index_prev` continue: the row read last, or an end of the rows. */
  enum Place { AT_ROW, BEFORE_ALL, BEHIND_ALL, BEFORE_PREFIX, BEHIND_PREFIX } m_place= AT_ROW;
  /* The scan ends with the prefix it was opened for; `index_next` continues behind it. */
  bool m_prefix_only= false;
  /* There is no scan: the row was read directly, because the prefix is a whole primary key. */
  bool m_at_point= false;
  /* The scan goes backward from the prefix's last row (HA_READ_PREFIX_LAST). */
  bool m_prefix_back= false;
  std::string m_prefix;
  /* The values of the key of `read_point`, for their memory. */
  Values m_point;
  key_part_map m_prefix_parts= 0;
  /* The end of the range whose first row is read. */
  const key_range *m_range_end= nullptr;
  /* The scan returns entries of an index; rows are read where an entry is not enough. */
  bool m_gives_entries= false;
  /* The scan locks nothing: its rows may go to records from where they lie. */
  bool m_is_plain= false;
  /* Parts of the active index, and of the clustered key that its entries end with, of which an entry
     has a prefix or weights but not the column: their fields. */
  std::vector<uint> m_partial;
  /* The server compares rows of the active index with each other, because a partitioned table merges them. */
  bool m_is_sorted= false;
  /* Rows are compared with the key that was given to `index_next_same`. */
  bool m_compares= false;
  DsMrr_impl m_ranges;
  /* A partition's own buffer for `m_ranges`, freed at the end of the statement. */
  std::unique_ptr<uchar[]> m_range_buffer;
  size_t m_range_bytes= 0;
  HANDLER_BUFFER m_range_space;
  uint8_t m_lock= EK_LOCK_NONE;
  /* The lock chosen when the table was entered; it may be for more than one statement. */
  uint8_t m_outer_lock= EK_LOCK_NONE;
  /* `m_is_entered`: the server has entered the table (`external_lock`) and not left it. `m_in_handler`: HANDLER uses
     it. */
  bool m_is_entered= false, m_in_handler= false;
  /* An ALTER copies rows from this table. */
  bool m_is_copied= false;
  /* Bytes of the pages that a scan reads. */
  ulonglong m_leaf_bytes= 0;
  /* The row count at which the keys were averaged. */
  ha_rows m_averaged_rows= 0;
  /* The record buffer holds the row that the scan returned last; `m_peeked`: it is not locked. */
  bool m_scan_row= false, m_peeked= false;
  /* The scan looks at rows that other transactions hold before it waits for them. */
  bool m_peek= false;
  Last_change m_last_change;
  /* The transaction has recorded that the present statement has changed the table. */
  bool m_changed= false;
  /* A transaction of its own: for a sequence, or for a table that an ALTER copies. */
  ek_txn *m_own= nullptr;
  /* Clustered key of the row in the record buffer. */
  std::string m_key;
  uint m_duplicate= 0;
  /* An ALTER copies rows into this table, which is new; the number is the server's estimate of the rows. */
  std::unique_ptr<Build> m_copy;
  ha_rows m_expected_rows= 0;
  /* A row that conflicts with a new one is changed or deleted (ON DUPLICATE KEY UPDATE, REPLACE). */
  bool m_replaces= false;
  /* End of this handle's last AUTO_INCREMENT numbers, their series, the greatest number written, and how many rows of
     the statement are still to come, as far as it is known. */
  struct
  {
    ulonglong rows_left= 0, end= 0, offset= 0, increment= 0, last= 0;
  } m_numbers;
  /* Values of BLOBs in the record: copies, and long values taken out of the row buffer. */
  MEM_ROOT m_blobs;
  std::vector<ek_long *> m_longs;
};
#endif
