"""A client of a server, by the library of the server's own clients: Client(SOCKET, database)."""
import ctypes

_lib = ctypes.CDLL("libmariadb.so.3")
for _name, _result in (("mysql_init", ctypes.c_void_p), ("mysql_real_connect", ctypes.c_void_p),
                       ("mysql_store_result", ctypes.c_void_p), ("mysql_error", ctypes.c_char_p),
                       ("mysql_fetch_row", ctypes.POINTER(ctypes.c_char_p)), ("mysql_thread_id", ctypes.c_ulong)):
    getattr(_lib, _name).restype = _result


class Failed(Exception):
    """A statement's error: `number` and text."""

    def __init__(self, number, text):
        super().__init__("%d: %s" % (number, text))
        self.number = number


class Client:
    def __init__(self, socket, database=None):
        self._of = ctypes.c_void_p(_lib.mysql_init(None))
        if not _lib.mysql_real_connect(self._of, None, b"root", None, database and database.encode(), 0,
                                       socket.encode(), ctypes.c_ulong(0)):
            raise self._failed()
        self.id = _lib.mysql_thread_id(self._of)

    def _failed(self):
        return Failed(_lib.mysql_errno(self._of), _lib.mysql_error(self._of).decode("utf8", "replace"))

    def run(self, statement):
        """The rows of a statement, as texts; raises Failed."""
        text = statement.encode()
        if _lib.mysql_real_query(self._of, text, ctypes.c_ulong(len(text))):
            raise self._failed()
        result = ctypes.c_void_p(_lib.mysql_store_result(self._of))
        if not result:
            if _lib.mysql_errno(self._of):
                raise self._failed()
            return []
        columns, rows = _lib.mysql_num_fields(result), []
        while row := _lib.mysql_fetch_row(result):
            rows.append([row[i] and row[i].decode("utf8", "replace") for i in range(columns)])
        _lib.mysql_free_result(result)
        return rows

    def number(self, statement):
        """The number of the error that a statement ends with; 0 if with none."""
        try:
            self.run(statement)
        except Failed as failed:
            return failed.number
        return 0

    def close(self):
        _lib.mysql_close(self._of)
