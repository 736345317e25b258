"""A client of the server over the C library that comes with it: many short statements, exact bytes."""
import ctypes

class Refused(Exception):
    """The server's error to a statement."""
    def __init__(self, number, text):
        super().__init__(f"{number}: {text}")
        self.number, self.text = number, text

def library():
    lib = ctypes.CDLL("libmariadb.so.3")
    pointers = ("mysql_init", "mysql_real_connect", "mysql_store_result", "mysql_fetch_lengths")
    for name in pointers:
        getattr(lib, name).restype = ctypes.c_void_p
    lib.mysql_fetch_row.restype = ctypes.POINTER(ctypes.c_void_p)
    lib.mysql_fetch_lengths.restype = ctypes.POINTER(ctypes.c_ulong)
    lib.mysql_error.restype = ctypes.c_char_p
    lib.mysql_affected_rows.restype = ctypes.c_longlong
    lib.mysql_errno.restype = lib.mysql_num_fields.restype = lib.mysql_field_count.restype = ctypes.c_uint
    return lib

LOST = (2006, 2013)  # the server is gone
MULTI_RESULTS = 1 << 17
LIB = library()

class Session:
    """One connection. A statement's answer is its rows (tuples of bytes or None), or how many it changed."""
    def __init__(self, socket, database=None):
        self.handle = ctypes.c_void_p(LIB.mysql_init(None))
        LIB.mysql_options(self.handle, 7, b"utf8mb4")  # MYSQL_SET_CHARSET_NAME
        done = LIB.mysql_real_connect(self.handle, None, b"root", None, database and database.encode(), 0,
                                      socket.encode(), ctypes.c_ulong(MULTI_RESULTS))
        if not done:
            raise self.refused()

    def refused(self):
        return Refused(LIB.mysql_errno(self.handle), LIB.mysql_error(self.handle).decode(errors="replace"))

    def run(self, sql):
        """The statement's answer; of a CALL that of its first result."""
        text = sql.encode()
        if LIB.mysql_real_query(self.handle, text, ctypes.c_ulong(len(text))):
            raise self.refused()
        answer = self.answer()
        while (more := LIB.mysql_next_result(self.handle)) == 0:
            self.answer()
        if more > 0:
            raise self.refused()
        return answer

    def answer(self):
        result = ctypes.c_void_p(LIB.mysql_store_result(self.handle))
        if not result:
            if LIB.mysql_field_count(self.handle):
                raise self.refused()
            return LIB.mysql_affected_rows(self.handle)
        fields, rows = LIB.mysql_num_fields(result), []
        while row := LIB.mysql_fetch_row(result):
            lengths = LIB.mysql_fetch_lengths(result)
            rows.append(tuple(None if row[i] is None else ctypes.string_at(row[i], lengths[i]) for i in range(fields)))
        LIB.mysql_free_result(result)
        return rows

    def close(self):
        LIB.mysql_close(self.handle)
