/* The handler that the server sees. An exception in a function that the server calls ends here and becomes the error
   of the statement. A test of crates/capi checks that each such function of ha_evenkeel is here. */
#ifndef EVENKEEL_GUARDED_H
#define EVENKEEL_GUARDED_H
#include "entry.h"
#include "ha_evenkeel.h"
#include <float.h>
#include <new>

/* A function that returns an error number. */
#define GUARDED(name, given, passed) \
  int name given override { return guarded([&] { return ha_evenkeel::name passed; }); }
/* A function that returns another type, and `failed` after an exception. */
#define GUARDED_AS(type, failed, name, given, passed) \
  type name given override { return guarded<type>(failed, [&] { return ha_evenkeel::name passed; }); }
#define GUARDED_CONST(type, failed, name, given, passed) \
  type name given const override { return guarded<type>(failed, [&] { return ha_evenkeel::name passed; }); }
#define GUARDED_VOID(name, given, passed) \
  void name given override { guarded_all([&] { ha_evenkeel::name passed; }); }

class ha_guarded final : public ha_evenkeel
{
public:
  using ha_evenkeel::ha_evenkeel;

  GUARDED_CONST(Table_flags, 0, table_flags, (), ())
  GUARDED_CONST(ulong, 0, index_flags, (uint index, uint part, bool all_parts), (index, part, all_parts))
  GUARDED_VOID(print_error, (int error, myf flags), (error, flags))

  GUARDED(open, (const char *name, int mode, uint test), (name, mode, test))
  GUARDED(close, (), ())
  GUARDED(create, (const char *name, TABLE *form, HA_CREATE_INFO *info), (name, form, info))
  GUARDED(delete_table, (const char *name), (name))
  GUARDED(rename_table, (const char *from, const char *to), (from, to))
  GUARDED(truncate, (), ())

  GUARDED_AS(enum_alter_inplace_result, HA_ALTER_ERROR, check_if_supported_inplace_alter,
             (TABLE *altered, Alter_inplace_info *info), (altered, info))
  GUARDED_AS(bool, true, prepare_inplace_alter_table, (TABLE *altered, Alter_inplace_info *info), (altered, info))
  GUARDED_AS(bool, true, inplace_alter_table, (TABLE *altered, Alter_inplace_info *info), (altered, info))
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override
  {
    /* A rollback has no second chance, and memory may be available again. */
    for (uint tries= 0; !commit && tries < 3; tries++)
      try
      {
        return ha_evenkeel::commit_inplace_alter_table(altered, info, commit);
      }
      catch (const std::bad_alloc &)
      {
      }
    return guarded(true, [&] { return ha_evenkeel::commit_inplace_alter_table(altered, info, commit); });
  }
  GUARDED_CONST(ulonglong, 0, table_version, (), ())
  GUARDED_CONST(bool, false, can_convert_nocopy, (const Field &field, const Column_definition &now), (field, now))
  GUARDED_CONST(Compare_keys, Compare_keys::NotEqual, compare_key_parts,
                (const Field &was, const Column_definition &now, const KEY_PART_INFO &before,
                 const KEY_PART_INFO &after), (was, now, before, after))

  GUARDED_AS(char *, nullptr, get_foreign_key_create_info, (), ())
  GUARDED_VOID(free_foreign_key_create_info, (char *text), (text))
  GUARDED(get_foreign_key_list, (THD *thd, List<FOREIGN_KEY_INFO> *to), (thd, to))
  GUARDED(get_parent_foreign_key_list, (THD *thd, List<FOREIGN_KEY_INFO> *to), (thd, to))
  bool referenced_by_foreign_key() const noexcept override
  {
    return guarded<bool>(true, [&] { return ha_evenkeel::referenced_by_foreign_key(); });
  }
  GUARDED_AS(bool, false, can_switch_engines, (), ())
  GUARDED_AS(bool, false, get_error_message, (int error, String *text), (error, text))

  GUARDED_AS(int, HA_ADMIN_FAILED, check, (THD *thd, HA_CHECK_OPT *options), (thd, options))
  GUARDED_AS(int, HA_ADMIN_FAILED, check_for_upgrade, (HA_CHECK_OPT *options), (options))
  GUARDED_AS(int, HA_ADMIN_FAILED, analyze, (THD *thd, HA_CHECK_OPT *options), (thd, options))
  GUARDED_AS(int, HA_ADMIN_FAILED, optimize, (THD *thd, HA_CHECK_OPT *options), (thd, options))
  GUARDED_AS(int, HA_ADMIN_FAILED, repair, (THD *thd, HA_CHECK_OPT *options), (thd, options))

  GUARDED(write_row, (const uchar *record), (record))
  GUARDED(update_row, (const uchar *old_record, const uchar *new_record), (old_record, new_record))
  GUARDED(delete_row, (const uchar *record), (record))

  GUARDED(rnd_init, (bool scan), (scan))
  GUARDED(rnd_end, (), ())
  GUARDED(rnd_next, (uchar *record), (record))
  GUARDED(rnd_pos, (uchar *record, uchar *position), (record, position))
  GUARDED(rnd_pos_by_record, (uchar *record), (record))
  GUARDED_VOID(position, (const uchar *record), (record))

  GUARDED(index_init, (uint index, bool sorted), (index, sorted))
  GUARDED(index_end, (), ())
  GUARDED(index_read_map, (uchar *record, const uchar *key, key_part_map parts, enum ha_rkey_function flag),
          (record, key, parts, flag))
  GUARDED(read_range_first, (const key_range *start, const key_range *end, bool equal, bool sorted),
          (start, end, equal, sorted))
  GUARDED(index_next, (uchar *record), (record))
  GUARDED(index_next_same, (uchar *record, const uchar *key, uint key_len), (record, key, key_len))
  GUARDED(index_prev, (uchar *record), (record))
  GUARDED(index_first, (uchar *record), (record))
  GUARDED(index_last, (uchar *record), (record))
  GUARDED_AS(ha_rows, HA_POS_ERROR, records, (), ())
  GUARDED_AS(ha_rows, HA_POS_ERROR, records_in_range,
             (uint index, const key_range *min, const key_range *max, page_range *pages), (index, min, max, pages))
  GUARDED_AS(double, DBL_MAX, scan_time, (), ())
  GUARDED_AS(double, DBL_MAX, read_time, (uint index, uint ranges, ha_rows rows), (index, ranges, rows))

  GUARDED_AS(handler *, nullptr, clone, (const char *name, MEM_ROOT *root), (name, root))
  GUARDED_AS(Item *, condition, idx_cond_push, (uint index, Item *condition), (index, condition))
  GUARDED_AS(bool, true, rowid_filter_push, (Rowid_filter *filter), (filter))
  GUARDED(multi_range_read_init,
          (RANGE_SEQ_IF *ranges, void *parameter, uint count, uint mode, HANDLER_BUFFER *buffer),
          (ranges, parameter, count, mode, buffer))
  GUARDED(multi_range_read_next, (range_id_t *range), (range))
  GUARDED_AS(ha_rows, HA_POS_ERROR, multi_range_read_info_const,
             (uint index, RANGE_SEQ_IF *ranges, void *parameter, uint count, uint *bytes, uint *flags,
              Cost_estimate *cost), (index, ranges, parameter, count, bytes, flags, cost))
  GUARDED_AS(ha_rows, HA_POS_ERROR, multi_range_read_info,
             (uint index, uint count, uint keys, uint parts, uint *bytes, uint *flags, Cost_estimate *cost),
             (index, count, keys, parts, bytes, flags, cost))
  GUARDED_AS(int, 0, multi_range_read_explain_info, (uint mode, char *text, size_t size), (mode, text, size))

  GUARDED(info, (uint what), (what))
  GUARDED_AS(bool, COMPATIBLE_DATA_NO, check_if_incompatible_data, (HA_CREATE_INFO *info, uint changes),
             (info, changes))
  GUARDED(extra, (enum ha_extra_function what), (what))
  GUARDED(reset, (), ())
  GUARDED(external_lock, (THD *thd, int lock_type), (thd, lock_type))
  GUARDED_VOID(init_table_handle_for_HANDLER, (), ())
  GUARDED(start_stmt, (THD *thd, thr_lock_type lock_type), (thd, lock_type))
  GUARDED_AS(THR_LOCK_DATA **, to, store_lock, (THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type),
             (thd, to, type))
  GUARDED_VOID(try_semi_consistent_read, (bool yes), (yes))
  GUARDED_VOID(unlock_row, (), ())
  GUARDED_VOID(update_create_info, (HA_CREATE_INFO *info), (info))
  GUARDED_VOID(get_auto_increment,
               (ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first, ulonglong *given),
               (offset, increment, wanted, first, given))
  GUARDED(reset_auto_increment, (ulonglong value), (value))
};

#undef GUARDED
#undef GUARDED_AS
#undef GUARDED_CONST
#undef GUARDED_VOID
#endif
