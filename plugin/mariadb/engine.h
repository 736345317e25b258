/* The plugin as one engine: its database, and names and errors between it and the server. */
#ifndef EVENKEEL_ENGINE_H
#define EVENKEEL_ENGINE_H
#include "server.h"
#include <string>

extern handlerton *evenkeel_hton;
extern ek_database *evenkeel_db;

inline ek_bytes ek_text(const std::string &s) { return {(const uint8_t *) s.data(), s.size()}; }

/* An engine's table for a path of the server's. */
std::string table_name(const char *path);
/* An error of the engine into the server's log. */
void report(const char *what, const ek_error &error);
#endif
