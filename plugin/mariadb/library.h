/* The plugins of this library, as the server has them. */
#ifndef EVENKEEL_LIBRARY_H
#define EVENKEEL_LIBRARY_H

/* To be called by each plugin's init function. INSTALL SONAME takes a plugin of the library that is uninstalled
   but still used for an installed one, unlocks its list of plugins while another one's init function runs, and
   then looks the first one up without checking that it is still there: where its last user has gone meanwhile,
   the server ends with signal 11 (10.11.18, finalize_install). This keeps such plugins until the statement ends. */
void keep_uninstalled_plugins();
#endif
