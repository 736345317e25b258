/* The plugin compares the classes that it was compiled with against what the running server shows of its own. No
   session is needed, so a plugin that a config file loads is checked like one that INSTALL loads. The server shows:
   - the sizes of its symbols: tables of virtual functions, and objects of structures;
   - its tables of virtual functions, whose entries are in the order of its classes;
   - the handlerton that it gives to an engine, of which few members are set;
   - its functions that read or fill in an object.
   The objects here are plain memory, followed by a margin, and are never constructed. Words that no test sets point
   to memory of ours, so a function that takes one for a pointer finds nothing and harms nothing. */
#include "server.h"
#include "layout.h"
#include <sql_i_s.h>
#include <dlfcn.h>
#include <link.h>
#include <new>
#include <vector>

namespace
{
/* The number of bytes by which the server's class may be larger than ours before it reads or writes outside our
   memory. */
constexpr size_t MARGIN= 4096;

template <class T> class Memory
{
public:
  explicit Memory(size_t count= 1) : m_words((count * sizeof(T) + MARGIN) / 8) {}
  T *get() { return (T *) m_words.data(); }
  T *operator->() { return get(); }
  void fill(uint64_t word) { m_words.assign(m_words.size(), word); }
  void lead_to(void *where) { fill((uint64_t) where); }
  /* No two words are equal, nor are two halves of them. */
  void number()
  {
    for (size_t i= 0; i < m_words.size(); i++)
      m_words[i]= (2 * i + 2) << 32 | (2 * i + 1);
  }
  std::vector<uint64_t> &words() { return m_words; }

private:
  std::vector<uint64_t> m_words;
};

/* Memory to which words point that are not pointers of a test. */
Memory<THD> &nowhere()
{
  static Memory<THD> memory;
  memory.fill(0);
  return memory;
}

/* Has all virtual functions of T and one more. */
template <class T> struct And_one : T
{
  virtual void one_more();
};

/* The number of virtual functions of T, which precede the additional one. A pointer to it is its offset in the
   table, in bytes, and one more on some machines. */
template <class T> size_t virtual_functions()
{
  void (And_one<T>::*pointer)()= &And_one<T>::one_more;
  size_t place;
  memcpy(&place, &pointer, sizeof place);
  return place / sizeof(void *);
}

/* Two words precede the functions of a class: an offset and a type. */
constexpr size_t BEFORE_FUNCTIONS= 2;

/* The size of a symbol of the server; 0 if it shows none of that name. */
size_t symbol_size(const char *name)
{
  void *address= dlsym(RTLD_DEFAULT, name);
  Dl_info found;
  const ElfW(Sym) *symbol= nullptr;
  /* If an address has two names, the lookup may find the other one. */
  if (!address || !dladdr1(address, &found, (void **) &symbol, RTLD_DL_SYMENT) || !symbol ||
      found.dli_saddr != address || strcmp(found.dli_sname, name) != 0)
    return 0;
  return symbol->st_size;
}

std::string differs(const std::string &what, size_t servers, size_t ours)
{
  return what + " is " + std::to_string(servers) + " in the server and " +
         std::to_string(ours) + " in the plugin";
}

std::string elsewhere(const char *what)
{
  return std::string(what) + " lies elsewhere in the server than in the plugin";
}

std::string check_version()
{
  /* The administrator may have set another version string. */
  if (!using_custom_server_version &&
      strncmp(server_version, MYSQL_SERVER_VERSION, strlen(MYSQL_SERVER_VERSION)) != 0)
    return std::string("the server is version ") + server_version +
           " and the plugin is built for " + MYSQL_SERVER_VERSION;
  return "";
}

std::string check_sizes()
{
  const struct
  {
    const char *what, *symbol;
    size_t size;
  } objects[]=
  {
    {"the size of system_variables", "global_system_variables", sizeof(system_variables)},
    {"the size of STATUS_VAR", "global_status_var", sizeof(STATUS_VAR)},
    {"the size of CHARSET_INFO", "my_charset_latin1", sizeof(CHARSET_INFO)},
    {"the size of MY_CHARSET_HANDLER", "my_charset_8bit_handler", sizeof(MY_CHARSET_HANDLER)},
    {"the size of MY_COLLATION_HANDLER", "my_collation_8bit_bin_handler",
     sizeof(MY_COLLATION_HANDLER)},
    /* One column and the end. */
    {"the size of two ST_FIELD_INFO", "_ZN4Show25enabled_roles_fields_infoE",
     2 * sizeof(ST_FIELD_INFO)},
  };
  for (const auto &object : objects)
    if (const size_t servers= symbol_size(object.symbol); servers && servers != object.size)
      return differs(object.what, servers, object.size);
  /* Their number is not visible. */
  if (symbol_size("schema_tables") % sizeof(ST_SCHEMA_TABLE) != 0)
    return "the size of ST_SCHEMA_TABLE is another in the server than in the plugin";
  return "";
}

/* A handler whose table of virtual functions has the server's functions wherever it can. */
struct Bare_handler : handler
{
  Bare_handler() : handler(nullptr, nullptr) {}
  ulong index_flags(uint, uint, bool) const override { return 0; }
  Table_flags table_flags() const override { return 0; }
  int open(const char *, int, uint) override { return 0; }
  int close() override { return 0; }
  int create(const char *, TABLE *, HA_CREATE_INFO *) override { return 0; }
  int rnd_init(bool) override { return 0; }
  int rnd_next(uchar *) override { return 0; }
  int rnd_pos(uchar *, uchar *) override { return 0; }
  void position(const uchar *) override {}
  int info(uint) override { return 0; }
  THR_LOCK_DATA **store_lock(THD *, THR_LOCK_DATA **to, enum thr_lock_type) override { return to; }

  /* Sets members that only a handler may access. */
  void put(TABLE *in_use, TABLE_SHARE *share)
  {
    table= in_use;
    table_share= share;
  }
  void put_share_ref(Handler_share **ref) { handler::set_ha_share_ref(ref); }
  Handler_share *server_reads_share() { return get_ha_share_ptr(); }
  void server_sets_lock(thr_lock_type type) { handler::set_lock_type(type); }
  void *server_reads_psi() const { return ha_table_share_psi(); }
};

struct Bare_varstring : Field_varstring
{
  using Field_varstring::Field_varstring;
};

template <class T> void **table_of(T *object) { return *(void ***) object; }

/* Functions of the server in our table must have the same places in the server's own table. A function that the
   server's table lacks proves nothing: it is inline, or the server's compiler has merged it with a function of the
   same instructions. */
template <class T> bool in_order(void **ours, const char *symbol)
{
  void **servers= (void **) dlsym(RTLD_DEFAULT, symbol);
  if (!servers || !symbol_size(symbol))
    return true;
  servers+= BEFORE_FUNCTIONS;
  const size_t count= virtual_functions<T>();
  for (size_t i= 0; i < count; i++)
    if (ours[i] != servers[i])
      for (size_t j= 0; j < count; j++)
        if (ours[i] == servers[j])
          return false;
  return true;
}

template <class T> std::string check_count(const char *name, const char *symbol)
{
  const size_t size= symbol_size(symbol), ours= virtual_functions<T>();
  const size_t servers= size / sizeof(void *) - BEFORE_FUNCTIONS;
  if (!size || servers == ours)
    return "";
  return differs(std::string("the number of virtual functions of ") + name, servers, ours);
}

/* A column of ten characters, the first of a record, in memory that is larger. */
class Column_memory
{
public:
  Column_memory()
  {
    m_share.fill(0);
    field= ::new (m_field.get())
      Bare_varstring(m_record + 1, 10, 1, m_record, 4, Field::NONE, &m_name, m_share.get(),
                     DTCollation(&my_charset_bin));
  }
  bool is_as_made() const
  {
    return field->ptr == m_record + 1 && field->null_ptr == m_record && field->null_bit == 4 &&
           field->field_length == 10 && field->field_name.str == m_name.str &&
           field->charset() == &my_charset_bin;
  }
  uchar *record() { return m_record; }
  Bare_varstring *field;

private:
  uchar m_record[64]= {};
  LEX_CSTRING m_name= {STRING_WITH_LEN("name")};
  Memory<TABLE_SHARE> m_share;
  Memory<Bare_varstring> m_field;
};

std::string check_virtual_functions()
{
  std::string found= check_count<handler>("handler", "_ZTV7handler");
  if (found.empty())
    found= check_count<Field>("Field", "_ZTV5Field");
  if (found.empty())
    found= check_count<Field_varstring>("Field_varstring", "_ZTV15Field_varstring");
  if (found.empty())
    found= check_count<Field_blob>("Field_blob", "_ZTV10Field_blob");
  if (!found.empty())
    return found;
  Memory<Bare_handler> memory;
  if (!in_order<handler>(table_of(::new (memory.get()) Bare_handler), "_ZTV7handler"))
    return "virtual functions of handler have another order in the server than in the plugin";
  Column_memory column;
  if (!in_order<Field_varstring>(table_of(column.field), "_ZTV15Field_varstring"))
    return "virtual functions of Field have another order in the server than in the plugin";
  return "";
}

/* my_malloc() keeps the size, rounded up, in front of the memory. */
size_t kept_size(const void *p)
{
  return ((const size_t *) p)[-2] & ~(size_t) 7;
}

/* Whether it does. */
bool keeps_size()
{
  const size_t known= 0x1238;
  void *probe= my_malloc(PSI_NOT_INSTRUMENTED, known, MYF(0));
  const bool keeps= probe && kept_size(probe) == known;
  my_free(probe);
  return keeps;
}

std::string check_size_of_handlerton(const handlerton *given)
{
  if (keeps_size() && kept_size(given) != MY_ALIGN(sizeof(handlerton), 8))
    return differs("the size of handlerton", kept_size(given), sizeof(handlerton));
  return "";
}

/* The server has set the members that an engine need not set; all others are zero. */
std::string check_handlerton(const handlerton *given)
{
  Memory<handlerton> expected;
  expected.fill(0);
  expected->slot= given->slot;
  expected->drop_table= given->drop_table;
  expected->tablefile_extensions= given->tablefile_extensions;
  expected->discover_table_names= given->discover_table_names;
  /* The bytes behind a smaller handlerton of the server belong to others. */
  const size_t both= keeps_size() ? MY_MIN(kept_size(given), sizeof(handlerton)) : sizeof(handlerton);
  if (memcmp(expected.get(), given, both) != 0 || given->slot != HA_SLOT_UNDEF ||
      !given->drop_table || !given->discover_table_names || !given->tablefile_extensions)
    return elsewhere("a member of handlerton");
  return check_size_of_handlerton(given);
}

std::string check_session()
{
  Memory<THD> memory;
  THD *thd= memory.get();
  memory.number();
  if (thd_get_thread_id(thd) != thd->thread_id)
    return elsewhere("THD::thread_id");
  if (thd_tx_isolation(thd) != (int) thd->tx_isolation)
    return elsewhere("THD::tx_isolation");
  if ((ulonglong) thd_test_options(thd, -1) != thd->variables.option_bits)
    return elsewhere("THD::variables");
  if (thd_query_id(thd) != (ulonglong) thd->query_id)
    return elsewhere("THD::query_id");
  Memory<handlerton> hton;
  hton.fill(0);
  hton->slot= 3;
  if (thd_get_ha_data(thd, hton.get()) != thd->ha_data[3].ha_ptr)
    return elsewhere("THD::ha_data");

  Memory<THD> &none= nowhere();
  memory.lead_to(none.get());
  Memory<LEX> lex;
  lex.number();
  thd->lex= lex.get();
  if (thd_sql_command(thd) != (int) thd->lex->sql_command)
    return elsewhere("THD::lex");
  const DDL_options_st *options= &thd->lex->create_info;
  if (thd_ddl_options(thd) != options)
    return elsewhere("LEX::create_info");
  Memory<Diagnostics_area> area;
  area.number();
  thd->set_stmt_da(area.get());
  if (thd_get_error_number(thd) != area->sql_errno())
    return elsewhere("THD's diagnostics area");
  return "";
}

/* init_tmp_table_share() clears the whole structure and sets some members. */
std::string check_share()
{
  Memory<TABLE_SHARE> memory;
  TABLE_SHARE *share= memory.get();
  Memory<THD> thd;
  thd.fill(0);
  thd->query_id= 0x5ead;
  const uint64_t untouched= ~(uint64_t) 0;
  memory.fill(untouched);
  const char *key= "key", *name= "name", *path= "path";
  init_tmp_table_share(thd.get(), share, key, 4, name, path);
  const size_t words= sizeof(TABLE_SHARE) / 8;
  size_t cleared= memory.words().size();
  while (cleared && memory.words()[cleared - 1] == untouched)
    cleared--;
  if (cleared != words)
    return differs("the size of TABLE_SHARE", cleared * 8, words * 8);
  if (share->db.str != key || share->table_name.str != name || share->path.str != path ||
      share->normalized_path.str != path || share->tmp_table != INTERNAL_TMP_TABLE ||
      share->table_map_id != 0x5ead)
    return elsewhere("a member of TABLE_SHARE");
  return "";
}

std::string check_create_info()
{
  Memory<TABLE> table;
  Memory<TABLE_SHARE> share;
  Memory<HA_CREATE_INFO> info;
  table.lead_to(nowhere().get());
  share.number();
  info.fill(0);
  table->s= share.get();
  update_create_info_from_table(info.get(), table.get());
  if (info->max_rows != share->max_rows || info->min_rows != share->min_rows ||
      info->table_options != share->db_create_options ||
      info->default_table_charset != share->table_charset ||
      info->comment.str != share->comment.str || info->option_list != share->option_list)
    return elsewhere("a member of HA_CREATE_INFO or TABLE_SHARE");
  return "";
}

/* The server adds up the lengths of the second key's three parts. */
std::string check_keys()
{
  Memory<THD> &none= nowhere();
  Memory<TABLE> table;
  Memory<KEY> keys(2);
  Memory<KEY_PART_INFO> parts(3);
  Memory<THD> thd;
  thd.fill(0);
  table.lead_to(none.get());
  keys.lead_to(none.get());
  parts.fill(0);
  table->in_use= thd.get();
  table->key_info= keys.get();
  KEY *key= table->key_info + 1;
  key->key_part= parts.get();
  key->user_defined_key_parts= key->ext_key_parts= 3;
  for (uint i= 0; i < 3; i++)
    key->key_part[i].store_length= 1U << (8 * i);
  if (calculate_key_len(table.get(), 1, nullptr, 7) != 0x10101)
    return elsewhere("a member of KEY, KEY_PART_INFO or TABLE");
  return "";
}

/* The server's own virtual function returns the size. */
template <class T> std::string check_field_size(const char *symbol)
{
  void **servers= (void **) dlsym(RTLD_DEFAULT, symbol);
  if (!servers)
    return "";
  Memory<T> memory;
  memory.lead_to(servers + BEFORE_FUNCTIONS);
  const Field *field= memory.get();
  return field->size_of() == sizeof(T)
           ? ""
           : differs("the size of a class of Field", field->size_of(), sizeof(T));
}

std::string check_columns()
{
  Column_memory column;
  Bare_varstring *field= column.field;
  if (!column.is_as_made())
    return elsewhere("a member of Field");
  for (const std::string &found : {check_field_size<Field_varstring>("_ZTV15Field_varstring"),
                                   check_field_size<Field_blob>("_ZTV10Field_blob")})
    if (!found.empty())
      return found;
  Memory<TABLE> table;
  Memory<KEY_PART_INFO> part;
  table.lead_to(nowhere().get());
  table->record[0]= column.record();
  part.fill(0);
  table->create_key_part_by_field(part.get(), field, 5);
  if (part->field != field || part->fieldnr != 5 || part->null_bit != 4 || part->null_offset != 0 ||
      part->offset != 1 || part->length != 10)
    return elsewhere("a member of KEY_PART_INFO, Field or TABLE");
  table.fill(0);
  table->field= (Field **) column.record();
  if ((void *) table->field_to_fill() != column.record())
    return elsewhere("TABLE::field");
  /* Near the end of the structure. */
  Memory<THD> &none= nowhere();
  none.lead_to(none.get());
  table->set_spl_opt_info((SplM_opt_info *) none.get());
  if (!table->is_splittable())
    return elsewhere("TABLE::spl_opt_info");
  return "";
}

std::string check_handler()
{
  Memory<Bare_handler> memory;
  Memory<TABLE> table;
  Memory<TABLE_SHARE> share;
  Bare_handler *one= memory.get();
  Memory<THD> &none= nowhere();
  memory.lead_to(none.get());
  table.fill(0);
  share.number();
  one->put(table.get(), share.get());
  one->server_sets_lock(TL_WRITE);
  if (table->reginfo.lock_type != TL_WRITE)
    return elsewhere("handler::table or TABLE::reginfo");
  if (one->server_reads_psi() != (void *) share->m_psi)
    return elsewhere("handler::table_share or TABLE_SHARE::m_psi");
  /* The last member, which only the class itself may access: it is the word that the call makes nonzero. */
  Handler_share *put= (Handler_share *) &memory;
  memory.fill(0);
  one->put_share_ref(&put);
  for (uint64_t &word : memory.words())
    if (!word)
      word= (uint64_t) none.get();
  if (one->server_reads_share() != put)
    return elsewhere("handler::ha_share");
  return "";
}
}

static std::string layout_mismatch(const handlerton *given)
{
  /* Checks that call no function of the server come first, and the virtual functions are checked before they are
     called. */
  for (std::string (*check)() : {check_version, check_sizes, check_virtual_functions})
    if (const std::string found= check(); !found.empty())
      return found;
  /* At its start the server loads functions before engines, MyISAM excepted. */
  const std::string found= given         ? check_handlerton(given)
                           : myisam_hton ? check_size_of_handlerton(myisam_hton)
                                         : std::string();
  if (!found.empty())
    return found;
  for (std::string (*check)() : {check_create_info, check_session, check_share, check_keys,
                                 check_columns, check_handler})
    if (const std::string found= check(); !found.empty())
      return found;
  return "";
}

bool layout_refused(const handlerton *given)
{
  /* A mismatch keeps the engine, its INFORMATION_SCHEMA tables and its function away. It is logged once for the engine
     and once for the others, because there are many tables. */
  static std::string mismatch;
  const bool known= !given && !mismatch.empty();
  if (!known)
    mismatch= layout_mismatch(given);
  if (mismatch.empty())
    return false;
  const char *text= "EVENKEEL: not loaded: %s: rebuild the plugin for this server";
  if (!known)
    sql_print_error(text, mismatch.c_str());
  if (current_thd)
    my_printf_error(ER_GET_ERRMSG, text, MYF(0), mismatch.c_str());
  return true;
}
