"""The two engines: a session of each that reads, and one that holds a transaction open beside it."""
import collections

from plans.client import LOST, Refused, Session

ENGINES = ("EVENKEEL", "InnoDB")
Failed = collections.namedtuple("Failed", "number")

def attempt(session, statements):
    """The last statement's answer, or the first error."""
    out = None
    try:
        for sql in statements:
            Sides.said.append(sql)
            out = session.run(sql)
        return out
    except Refused as refused:
        if refused.number in LOST:
            raise
        return Failed(refused.number)

class Sides:
    """A reader and a writer in each engine's database."""
    said = collections.deque(maxlen=12)  # the last statements, to be told if the server goes down

    def __init__(self, socket, name="p"):
        self.readers, self.writers = {}, {}
        for engine in ENGINES:
            admin = Session(socket)
            admin.run(f"create or replace database {name}_{engine.lower()} character set utf8mb4")
            admin.close()
            for sessions in (self.readers, self.writers):
                sessions[engine] = session = Session(socket, f"{name}_{engine.lower()}")
                for sql in head(engine):
                    session.run(sql)

    def both(self, sql, writer=False):
        return [(self.writers if writer else self.readers)[engine].run(sql) for engine in ENGINES]

    def close(self):
        for session in (*self.readers.values(), *self.writers.values()):
            session.close()

def head(engine):
    """What every session begins with."""
    wait = ", evenkeel_lock_wait_timeout = 1" if engine == "EVENKEEL" else ""
    return [f"set default_storage_engine = {engine}, innodb_lock_wait_timeout = 1{wait}",
            "set sql_mode = 'NO_ENGINE_SUBSTITUTION', timestamp = 1700000000.123456, group_concat_max_len = 100000000, "
            "max_statement_time = 60, sql_notes = 0"]
