"""Copies of the server's headers in which one member or one virtual function is more, or has another place, for
test_layout.py."""
import collections
import os
import re
import shutil

from servers import Problem

# Beside `line` of a header (from its beginning) comes `new` after it, or goes `moved` (the beginning of a line that is
# there) from its place. Any blanks are one. `says` is what the log says of it.
Alteration = collections.namedtuple("Alteration", "name header line new moved says")


def more(name, header, line, new, says):
    return Alteration(name, header, line, new, None, says)


ELSEWHERE = "lies elsewhere"
MEMBER = "void *inserted;"
FUNCTION = "virtual int inserted() { return 0; }"
ALL = [
    more("handler-function", "handler.h", "  virtual int rnd_end()", FUNCTION,
         "the number of virtual functions of handler is"),
    Alteration("handler-order", "handler.h", "  virtual int close(void)=0;", None, "  virtual int rnd_end()",
               "virtual functions of handler have another order"),
    more("handler-first", "handler.h", "  TABLE_SHARE *table_share;   /*", MEMBER,
         "handler::table or TABLE::reginfo lies elsewhere"),
    more("handler-last", "handler.h", "  int m_lock_type;", MEMBER, "handler::ha_share lies elsewhere"),
    more("handlerton-first", "handler.h", "   uint savepoint_offset;", MEMBER,
         "a member of handlerton lies elsewhere"),
    more("handlerton-last", "handler.h", "  void (*pre_shutdown)(void);", MEMBER, "the size of handlerton is"),
    more("thd-first", "sql_class.h", "  LEX *lex;   ", MEMBER, ELSEWHERE),
    more("thd-middle", "sql_class.h", "  Ha_data ha_data[MAX_HA];", MEMBER, ELSEWHERE),
    more("thd-last", "sql_class.h", "  enum_tx_isolation tx_isolation;", MEMBER,
         "THD's diagnostics area lies elsewhere"),
    more("variables", "sql_class.h", "  ulonglong option_bits; ///<", "ulonglong inserted;",
         "the size of system_variables is"),
    more("lex", "sql_lex.h", "  enum_sql_command sql_command;", MEMBER, "LEX::create_info lies elsewhere"),
    more("table-first", "table.h", "  TABLE_SHARE\t*s;", MEMBER, ELSEWHERE),
    more("table-last", "table.h", "  GRANT_INFO grant;", MEMBER, "TABLE::spl_opt_info lies elsewhere"),
    more("share", "table.h", "  PSI_table_share *m_psi;", MEMBER, "the size of TABLE_SHARE is"),
    more("create-info", "handler.h", "  LEX_CSTRING connect_string;", MEMBER, "a member of HA_CREATE_INFO"),
    more("key", "structs.h", "typedef struct st_key {", MEMBER, "a member of KEY"),
    more("key-part", "structs.h", "  field_index_t fieldnr;", MEMBER, "a member of KEY"),
    more("field", "field.h", "class Field: public Value_source", MEMBER, ELSEWHERE),
    more("blob", "field.h", "  uint packlength;", MEMBER, "the size of a class of Field is"),
    more("schema-table", "sql_i_s.h", "typedef struct st_schema_table", MEMBER, "the size of ST_SCHEMA_TABLE is"),
    more("field-function", "field.h", "  virtual uint size_of() const =0;", FUNCTION,
         "the number of virtual functions of Field is"),
]


def begins(text, beginning):
    return re.sub("[ \t]+", " ", text).startswith(re.sub("[ \t]+", " ", beginning))


def altered(lines, alteration):
    """The lines of a header with the alteration, or None if a line of it is not there."""
    new = alteration.new
    if alteration.moved:
        # What moves may be below its new place.
        gone = next((at for at, line in enumerate(lines) if begins(line, alteration.moved)), None)
        if gone is None:
            return None
        new, lines = lines[gone], lines[:gone] + lines[gone + 1:]
    at = next((at for at, line in enumerate(lines) if begins(line, alteration.line)), len(lines))
    # Behind the end of what begins there.
    end = next((end for end in range(at, len(lines))
                if re.search(r"[;{}][ \t]*$|;[ \t]*/[/*]", lines[end])), None)
    return None if end is None else lines[:end + 1] + [new] + lines[end + 1:]


def link_or_copy(source, target):
    """A hard link: the compiler looks for what a header includes where another link leads."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def write(headers, folder, alteration):
    """Links to the headers in a new folder, with this alteration."""
    folder.mkdir()
    for part in headers.iterdir():
        if part.name != "sql":
            (folder / part.name).symlink_to(part)
    shutil.copytree(headers / "sql", folder / "sql", copy_function=link_or_copy)
    header = folder / "sql" / alteration.header
    # Written through the link the server's own header would change.
    header.unlink()
    text = (headers / "sql" / alteration.header).read_text(errors="surrogateescape")
    lines = altered(text.split("\n"), alteration)
    if lines is None:
        raise Problem(f"{alteration.name}: no such line in {alteration.header}")
    header.write_text("\n".join(lines), errors="surrogateescape")
