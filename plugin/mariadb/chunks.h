/* Chunked tables: the options of a definition, and what the server's statements do with chunks. */
#ifndef EVENKEEL_CHUNKS_H
#define EVENKEEL_CHUNKS_H
#include "server.h"
#include <string>
#include <vector>

/* The options of a table and of a column, which the server reads and shows. */
struct ha_table_option_struct
{
  char *retain;
  bool chunked;
};
struct ha_field_option_struct
{
  char *interval;
  ulonglong slots;
  uint unit;
};
extern ha_create_table_option chunk_table_options[], chunk_field_options[];

/* How a definition cuts its table into chunks. */
class Chunk_options
{
public:
  /* The options of a table's definition; false, with the error raised, if they cannot be met, or if a statement that
     copies a chunked table leaves them out. */
  bool read(THD *thd, const TABLE *form, const HA_CREATE_INFO *info, bool has_foreign_keys);
  bool is_chunked() const { return m_time != nullptr; }
  /* For the engine; null for a table that is not chunked. It lives as long as the definition. */
  const ek_chunking *get() const { return is_chunked() ? &m_spec : nullptr; }

private:
  bool find_columns(const TABLE *form);
  bool check_table(const TABLE *form, const HA_CREATE_INFO *info, bool has_foreign_keys);
  bool check_time(const TABLE *form);
  bool check_keys(const TABLE *form);

  const Field *m_time= nullptr, *m_space= nullptr;
  ek_chunking m_spec= {};
};

/* The reason why a change of a chunked table, or one that makes or ends its chunks, is made by copying; null if it
   only changes what the engine does not store. */
const char *copied_for_chunks(bool is_chunked, const TABLE *before, const TABLE *after, bool stores_nothing);
/* The server's clock in the unit of a table's times: in its time zone where the column has none. */
int64_t chunk_clock(int unit, time_t now);
/* Seconds from 1970 of a date and time, without a zone. */
int64_t chunk_seconds(const MYSQL_TIME &t);
/* A time in the unit of a table's times, as its column shows it. */
std::string chunk_time(THD *thd, int unit, int64_t at);
/* The SQL function evenkeel_drop_chunks. */
extern class Plugin_function evenkeel_drop_chunks_function;
int evenkeel_drop_chunks_init(void *);
/* The options of columns, in the order of the columns, or "" if the table is not chunked. */
std::string chunk_text(const TABLE *table);
#endif
