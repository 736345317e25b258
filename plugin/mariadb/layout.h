/* Do we see the server's classes as the server does? */
#ifndef EVENKEEL_LAYOUT_H
#define EVENKEEL_LAYOUT_H
/* Null if so, else what differs: the plugin must not load then. */
const char *layout_mismatch(class THD *thd);
#endif
