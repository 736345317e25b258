/* Chunked tables: which definitions the engine takes, and how an ALTER treats them (RFC 51).
   A column with CHUNK_INTERVAL is the time, one with CHUNK_SLOTS tells the slot, RETAIN is an option of the table. The
   server keeps options of a column with the column, so they survive its renaming; but a MODIFY or CHANGE that does not
   repeat them loses them. Such a statement is refused unless the table says CHUNKED=NO. */
#include "chunks.h"
#include "columns.h"
#include "ddl.h"
#include "engine.h"
#include "fault_injection.h"
#include "keys.h"
#include <sql_time.h>
#include <tztime.h>

/* Times of a thousand years fit in all units. */
static const uint64_t INTERVAL_S_MAX= 1000ULL * 366 * 86400;
/* Days from the year 0 to 1970-01-01. */
static const long EPOCH_DAYS= 719528;

ha_create_table_option chunk_table_options[]=
{
  HA_TOPTION_STRING("RETAIN", retain),
  HA_TOPTION_BOOL("CHUNKED", chunked, 1),
  HA_TOPTION_END
};

/* 0 is none. */
ha_create_table_option chunk_field_options[]=
{
  HA_FOPTION_STRING("CHUNK_INTERVAL", interval),
  HA_FOPTION_NUMBER("CHUNK_SLOTS", slots, 0, 0, 256, 1),
  HA_FOPTION_ENUM("CHUNK_UNIT", unit, "NONE,DAY,SECOND,MILLISECOND,MICROSECOND,NANOSECOND", 0),
  HA_FOPTION_END
};

static bool refuse(const TABLE_SHARE *share, const std::string &why)
{
  my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "EVENKEEL: table '%s.%s': %s", MYF(0), share->db.str,
                  share->table_name.str, why.c_str());
  return false;
}

static std::string name_of(const Field *field) { return std::string("`") + field->field_name.str + "`"; }

/* Seconds of an option such as '90 days'; 0 if it is none. */
static uint64_t seconds_of(const char *option)
{
  static const std::pair<const char *, uint64_t> units[]= {
      {"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}, {"week", 7 * 86400}};
  char *end;
  const char *at= option;
  while (*at == ' ')
    at++;
  if (*at < '0' || *at > '9')
    return 0;
  const uint64_t count= strtoull(at, &end, 10);
  while (*end == ' ')
    end++;
  std::string word(end);
  while (!word.empty() && word.back() == ' ')
    word.pop_back();
  if (word.size() > 1 && (word.back() == 's' || word.back() == 'S'))
    word.pop_back();
  for (const auto &[name, seconds] : units)
    if (!strcasecmp(word.c_str(), name))
      return count <= INTERVAL_S_MAX / seconds ? count * seconds : 0;
  return 0;
}

static std::string no_time(const char *option, const char *given)
{
  return std::string(option) + "='" + given + "' is no length of time: write a number and SECOND, MINUTE, HOUR, DAY or "
         "WEEK, up to 1000 years, for example " + option + "='1 day'";
}

/* The unit in which the engine counts the times of a column; -1 if there is none. */
static int unit_of(const Field *field)
{
  switch (field->real_type())
  {
  case MYSQL_TYPE_NEWDATE: return EK_UNIT_PACKED_DAYS;
  case MYSQL_TYPE_DATETIME2: return EK_UNIT_PACKED_SECONDS;
  case MYSQL_TYPE_TIMESTAMP2: return EK_UNIT_TIMESTAMP;
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG: return field->option_struct->unit ? (int) field->option_struct->unit - 1 : -1;
  default: return -1;
  }
}

static bool is_number(const Field *field)
{
  const Column::How how= Column::of(field).how;
  return how == Column::AS_INT || how == Column::AS_UINT;
}

bool Chunk_options::find_columns(const TABLE *form)
{
  for (Field **f= form->field; *f; f++)
  {
    const ha_field_option_struct *given= (*f)->option_struct;
    if (!given)
      continue;
    if (given->interval && m_time)
      return refuse(form->s, "columns " + name_of(m_time) + " and " + name_of(*f) + " both have CHUNK_INTERVAL: leave one "
                    "of them out");
    if (given->interval)
      m_time= *f;
    if (given->slots && m_space)
      return refuse(form->s, "columns " + name_of(m_space) + " and " + name_of(*f) + " both have CHUNK_SLOTS: leave one "
                    "of them out");
    if (given->slots)
      m_space= *f;
    if (given->unit && !given->interval)
      return refuse(form->s, "column " + name_of(*f) + " has CHUNK_UNIT and no CHUNK_INTERVAL: add CHUNK_INTERVAL, or "
                    "leave CHUNK_UNIT out");
  }
  return true;
}

/* What the kind of the table admits. */
bool Chunk_options::check_table(const TABLE *form, const HA_CREATE_INFO *info, bool has_foreign_keys)
{
  const TABLE_SHARE *share= form->s;
  if (info->options & HA_LEX_CREATE_TMP_TABLE)
    return refuse(share, "a temporary table has no chunks: leave CHUNK_INTERVAL out, or add CHUNKED=NO");
  if (form->versioned())
    return refuse(share, "a table WITH SYSTEM VERSIONING has no chunks: leave one of both out");
  if (share->primary_key >= MAX_KEY)
    return refuse(share, "a chunked table needs a PRIMARY KEY that holds " + name_of(m_time) +
                  (m_space ? " and " + name_of(m_space) : ""));
  if (has_foreign_keys)
    return refuse(share, "a chunked table has no FOREIGN KEY: leave it out, or add CHUNKED=NO");
  return true;
}

bool Chunk_options::check_time(const TABLE *form)
{
  const std::string time= name_of(m_time);
  const ha_field_option_struct *given= m_time->option_struct;
  const int unit= unit_of(m_time);
  if (unit < 0 && is_number(m_time))
    return refuse(form->s, "the numbers of column " + time + " need a unit: add CHUNK_UNIT=SECOND (or DAY, MILLISECOND, "
                  "MICROSECOND, NANOSECOND); they count from 1970-01-01");
  if (unit < 0)
    return refuse(form->s, "column " + time + " with CHUNK_INTERVAL is not a DATE, DATETIME, TIMESTAMP or integer");
  if (given->unit && !is_number(m_time))
    return refuse(form->s, "the type of column " + time + " has its own unit: leave CHUNK_UNIT out");
  if (!m_time->stored_in_db())
    return refuse(form->s, "column " + time + " is VIRTUAL and cannot tell the chunk: make it STORED");
  if (m_time->real_maybe_null())
    return refuse(form->s, "column " + time + " tells the chunk and must be NOT NULL");
  if (m_time->flags & AUTO_INCREMENT_FLAG || (m_space && m_space->flags & AUTO_INCREMENT_FLAG))
    return refuse(form->s, "an AUTO_INCREMENT column cannot tell the chunk");
  const bool is_days= unit == EK_UNIT_PACKED_DAYS || unit == EK_UNIT_DAYS;
  m_spec.width_s= seconds_of(given->interval);
  if (!m_spec.width_s)
    return refuse(form->s, no_time("CHUNK_INTERVAL", given->interval));
  if (const char *retain= form->s->option_struct ? form->s->option_struct->retain : nullptr)
  {
    m_spec.retain_s= seconds_of(retain);
    if (!m_spec.retain_s)
      return refuse(form->s, no_time("RETAIN", retain));
  }
  if (is_days && (m_spec.width_s % 86400 || m_spec.retain_s % 86400))
    return refuse(form->s, "column " + time + " counts days: CHUNK_INTERVAL and RETAIN must be whole days");
  m_spec.unit= (uint8_t) unit;
  return true;
}

/* The keys that no two rows may share hold the time and the slot. */
bool Chunk_options::check_keys(const TABLE *form)
{
  for (uint i= 0; i < form->s->keys; i++)
  {
    const KEY *key= &form->key_info[i];
    if (i != form->s->primary_key && !is_unique(key))
      continue;
    for (const Field *wanted : {m_time, m_space})
    {
      if (!wanted)
        continue;
      bool is_held= false;
      for (uint j= 0; j < key->user_defined_key_parts; j++)
        is_held|= key->key_part[j].fieldnr == wanted->field_index + 1 && is_whole(&key->key_part[j]);
      if (!is_held)
        return refuse(form->s, std::string("key `") + key->name.str + "` is unique and must hold column " +
                      name_of(wanted) + ", which tells the chunk, as a whole: add the column to the key, or make the key "
                      "not unique");
    }
  }
  if (m_space && m_space->has_charset() && m_space->charset() != &my_charset_bin)
    return refuse(form->s, "column " + name_of(m_space) + " with CHUNK_SLOTS compares by a collation: use an integer or "
                  "VARBINARY column");
  return true;
}

/* The column of a chunked definition that has an option. */
static const Field *column_with(const TABLE *table, bool of_slots)
{
  if (table->part_info || (table->s->option_struct && !table->s->option_struct->chunked))
    return nullptr;
  for (Field **f= table->field; *f; f++)
    if (const ha_field_option_struct *given= (*f)->option_struct)
      if (of_slots ? given->slots > 1 : given->interval != nullptr)
        return *f;
  return nullptr;
}

/* True if some column says how many slots there are. */
static bool names_slots(const TABLE *table)
{
  for (Field **f= table->field; *f; f++)
    if ((*f)->option_struct && (*f)->option_struct->slots)
      return true;
  return false;
}

/* True, with the error raised, if a statement that copies a chunked table leaves its options out. */
static bool loses_chunks(THD *thd, const TABLE *form, bool is_chunked)
{
  const TABLE_LIST *first= thd->lex->query_tables;
  const TABLE *before= first ? first->table : nullptr;
  if (!copies_table(thd) || plant("ChunkOptionsLost") || !before || !before->file || before->file->ht != evenkeel_hton ||
      (!form->part_info && form->s->option_struct && !form->s->option_struct->chunked))
    return false;
  const Field *time= column_with(before, false), *space= column_with(before, true);
  if (time && form->part_info)
    return !refuse(form->s, "the table is chunked, and PARTITION BY would end that: make it a table without chunks by "
                   "CHUNKED=NO first");
  if (time && !is_chunked)
    return !refuse(form->s, "the table is chunked, and the statement leaves the option of column " + name_of(time) +
                   " out: repeat CHUNK_INTERVAL='" + time->option_struct->interval + "' there, or add CHUNKED=NO to make "
                   "a table without chunks");
  if (time && space && !names_slots(form))
    return !refuse(form->s, "the statement leaves the option of column " + name_of(space) + " out: repeat CHUNK_SLOTS=" +
                   std::to_string(space->option_struct->slots) + " there, or CHUNK_SLOTS=1 for one slot");
  return false;
}

bool Chunk_options::read(THD *thd, const TABLE *form, const HA_CREATE_INFO *info, bool has_foreign_keys)
{
  /* The server knows no options of the engine for a partitioned table. */
  if (form->part_info)
    return !loses_chunks(thd, form, false);
  const ha_table_option_struct *of_table= form->s->option_struct;
  if (of_table && !of_table->chunked)
    return true;
  if (!find_columns(form) || loses_chunks(thd, form, is_chunked()))
    return false;
  if (m_space && !m_time)
    return refuse(form->s, "column " + name_of(m_space) + " has CHUNK_SLOTS, and no column has CHUNK_INTERVAL: give the "
                  "column of times CHUNK_INTERVAL, or leave CHUNK_SLOTS out");
  if (!m_time && of_table && of_table->retain)
    return refuse(form->s, "RETAIN drops chunks, and no column has CHUNK_INTERVAL: add CHUNK_INTERVAL to the column of "
                  "times, or leave RETAIN out");
  if (!m_time)
    return true;
  m_spec.slots= m_space ? (uint32_t) m_space->option_struct->slots : 1;
  m_spec.time= {(const uint8_t *) m_time->field_name.str, m_time->field_name.length};
  if (m_space)
    m_spec.space= {(const uint8_t *) m_space->field_name.str, m_space->field_name.length};
  if (m_space == m_time)
    return refuse(form->s, "column " + name_of(m_time) + " cannot have both CHUNK_INTERVAL and CHUNK_SLOTS");
  return check_table(form, info, has_foreign_keys) && check_time(form) && check_keys(form);
}

std::string chunk_text(const TABLE *table)
{
  const Field *time= column_with(table, false);
  if (!time)
    return "";
  std::string text= std::to_string(time->field_index) + " " + time->option_struct->interval + " " +
                    std::to_string(time->option_struct->unit);
  if (table->s->option_struct && table->s->option_struct->retain)
    text+= std::string(" retain ") + table->s->option_struct->retain;
  for (Field **f= table->field; *f; f++)
    if ((*f)->option_struct && (*f)->option_struct->slots)
      text+= " " + std::to_string((*f)->field_index) + " " + std::to_string((*f)->option_struct->slots);
  return text;
}

const char *copied_for_chunks(bool is_chunked, const TABLE *before, const TABLE *after, bool stores_nothing)
{
  if (chunk_text(before) != chunk_text(after))
    return "other chunks";
  if (is_chunked && !stores_nothing)
    return "each change of a chunked table's columns and indexes";
  return nullptr;
}

std::string chunk_time(THD *thd, int unit, int64_t at)
{
  if (unit < EK_UNIT_PACKED_DAYS)
    return std::to_string(at);
  MYSQL_TIME t;
  Time_zone *zone= unit == EK_UNIT_TIMESTAMP ? thd->variables.time_zone : my_tz_UTC;
  zone->gmt_sec_to_TIME(&t, (my_time_t) (unit == EK_UNIT_PACKED_DAYS ? at * 86400 : at));
  char text[MAX_DATE_STRING_REP_LENGTH];
  return std::string(text, unit == EK_UNIT_PACKED_DAYS ? my_date_to_str(&t, text) : my_datetime_to_str(&t, text, 0));
}

int64_t chunk_seconds(const MYSQL_TIME &t)
{
  return (int64_t) (calc_daynr(t.year, t.month, t.day) - EPOCH_DAYS) * 86400 + t.hour * 3600 + t.minute * 60 + t.second;
}

int64_t chunk_clock(int unit, time_t now)
{
  MYSQL_TIME t;
  switch (unit)
  {
  case EK_UNIT_DAYS: return now / 86400;
  case EK_UNIT_MILLISECONDS: return (int64_t) now * 1000;
  case EK_UNIT_MICROSECONDS: return (int64_t) now * 1000000;
  case EK_UNIT_NANOSECONDS: return (int64_t) now * 1000000000;
  case EK_UNIT_PACKED_DAYS:
  case EK_UNIT_PACKED_SECONDS:
    global_system_variables.time_zone->gmt_sec_to_TIME(&t, now);
    return unit == EK_UNIT_PACKED_DAYS ? chunk_seconds(t) / 86400 : chunk_seconds(t);
  default: return now;
  }
}
