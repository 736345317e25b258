/* The server's headers that every file of the plugin includes, in the order that they need. */
#ifndef EVENKEEL_SERVER_H
#define EVENKEEL_SERVER_H
#include <my_global.h>
#include <mysql/plugin.h>
#include <sql_class.h>
#include <handler.h>
#include <field.h>
#include <table.h>
#include <key.h>
#include <log.h>
#include <sql_lex.h>
#include "compat.h"
#include "capi.h"
#endif
