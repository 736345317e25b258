/* The plugin as one engine: its database, and names and errors between it and the server. */
#ifndef EVENKEEL_ENGINE_H
#define EVENKEEL_ENGINE_H
#include "server.h"
#include <string>

extern handlerton *evenkeel_hton;
/* Null if its files are damaged so that it could not be opened: then the server runs, each use of a
   table is an error, and none is changed. Who has a table open keeps the plugin loaded, and this open;
   anybody else has a `Database_use`. */
extern ek_database *evenkeel_db;

/* For as long as it lives the database is not closed; false if it is not open, or about to be closed. */
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

/* An engine's table for a path of the server's. */
std::string table_name(const char *path);
/* With no database: tells the client why; the error to return. */
int not_open();
/* Where nothing fails for it. */
void warn_not_open(THD *thd);
/* An error of the engine into the server's log. */
void report(const char *what, const ek_error &error);
#endif
