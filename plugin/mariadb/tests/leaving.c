/* Connections that end while others kill them: leaving SOCKET TABLE CONNECTIONS. Ends with 0 when so many
   have come and gone, with 1 if none went for half a minute, or reading the table fails then. */
#include <mysql.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLIENTS= 12, KILLERS= 4, PATIENCE_S= 30 };

static const char *server, *statement;
static long wanted;
static atomic_long gone;
/* Whom to kill. */
static atomic_ulong present[CLIENTS];

static MYSQL *connected(void)
{
  MYSQL *client= mysql_init(NULL);
  if (client && mysql_real_connect(client, NULL, "root", NULL, NULL, 0, server, 0))
    return client;
  mysql_close(client);
  return NULL;
}

static int read_table(MYSQL *client)
{
  if (mysql_query(client, statement))
    return 1;
  MYSQL_RES *rows= mysql_store_result(client);
  mysql_free_result(rows);
  return rows == NULL;
}

/* A connection ends by itself right after it has used the engine, or is killed meanwhile. */
static void *come_and_go(void *place)
{
  unsigned seed= (unsigned)(size_t) place;
  mysql_thread_init();
  while (gone < wanted)
  {
    MYSQL *client= connected();
    if (!client)
      continue;
    read_table(client);
    present[(size_t) place]= mysql_thread_id(client);
    if (rand_r(&seed) % 2)
      usleep(rand_r(&seed) % 200);
    mysql_close(client);
    gone++;
  }
  return NULL;
}

static void *kill_them(void *seed_from)
{
  unsigned seed= (unsigned)(size_t) seed_from;
  char kill[64];
  mysql_thread_init();
  MYSQL *client= connected();
  while (client)
  {
    const unsigned long id= atomic_exchange(&present[rand_r(&seed) % CLIENTS], 0);
    if (!id)
      continue;
    snprintf(kill, sizeof kill, "kill %s %lu", rand_r(&seed) % 2 ? "connection" : "query", id);
    mysql_query(client, kill);
  }
  fprintf(stderr, "no connection to kill from\n");
  exit(1);
}

int main(int count, char **arguments)
{
  char select[256];
  pthread_t thread;
  if (count != 4)
    return 2;
  server= arguments[1];
  snprintf(select, sizeof select, "select * from %s", arguments[2]);
  statement= select;
  wanted= atol(arguments[3]);
  mysql_library_init(0, NULL, NULL);
  for (size_t i= 0; i < CLIENTS; i++)
    pthread_create(&thread, NULL, come_and_go, (void *) i);
  for (size_t i= 0; i < KILLERS; i++)
    pthread_create(&thread, NULL, kill_them, (void *) (i + CLIENTS));
  long before= -1;
  for (int idle= 0; gone < wanted; idle= gone == before ? idle + 1 : 0)
  {
    if (idle == PATIENCE_S)
    {
      fprintf(stderr, "after %ld connections nobody gets on\n", before);
      return 1;
    }
    before= gone;
    sleep(1);
  }
  MYSQL *last= connected();
  _exit(!last || read_table(last));
}
