/* Checks that the plugin's view of the server's classes is the server's own. */
#ifndef EVENKEEL_LAYOUT_H
#define EVENKEEL_LAYOUT_H

/* False if the layouts agree. Otherwise the plugin must not load, and the differences have been reported to the
   client that loads it. `given` is the structure that the server gave to the engine to fill in, still unchanged;
   null where it gave none. */
bool layout_refused(const struct handlerton *given);
#endif
