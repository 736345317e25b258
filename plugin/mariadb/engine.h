/* The plugin as one engine: its database, and the names and errors between the engine and the server. */
#ifndef EVENKEEL_ENGINE_H
#define EVENKEEL_ENGINE_H
#include "server.h"
#include <string>

extern handlerton *evenkeel_hton;
/* Null if the database could not be opened because its files are damaged. The server then runs, each use of a table
   is an error, and no table is changed. An open table keeps the plugin loaded and the database open; any other user
   of the database needs a `Database_use`. */
extern ek_database *evenkeel_db;

/* The database is not closed while this object lives. False if the database is not open, or about to be closed. */
class Database_use
{
public:
  Database_use() noexcept;
  ~Database_use();
  Database_use(const Database_use &)= delete;
  explicit operator bool() const { return m_is_open; }

private:
  const bool m_is_open;
};

inline ek_bytes ek_text(const std::string &s) { return {(const uint8_t *) s.data(), s.size()}; }

/* The engine's table name for a path of the server. */
std::string table_name(const char *path);
/* Tells the client why there is no database; returns the error. */
int not_open();
/* The same as a warning, for statements that continue. */
void warn_not_open(THD *thd);
/* Writes an error of the engine to the server's log. */
void report(const char *what, const ek_error &error);
#endif
