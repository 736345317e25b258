/* Do we see the server's classes as the server does? */
#ifndef EVENKEEL_LAYOUT_H
#define EVENKEEL_LAYOUT_H

/* False if so. Else the plugin must not load, and who loads it has been told what differs. `given` is
   what the server gave to the engine to fill in, before anything was; null where it gave none. */
bool layout_refused(const struct handlerton *given);
#endif
