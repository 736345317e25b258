/* RETAIN of chunked tables: the thread that drops their old chunks. */
#ifndef EVENKEEL_RETENTION_H
#define EVENKEEL_RETENTION_H

/* Seconds between two looks; 0: none. */
extern unsigned retention_interval;
/* The number of chunks that RETAIN has dropped since the start. */
unsigned long long retention_drops();
/* The database is open; it is about to be closed. */
void start_retention();
void stop_retention();
#endif
