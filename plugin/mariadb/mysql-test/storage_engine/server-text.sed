# What MariaDB 10.11 prints for every engine otherwise than when the results of the server's suite
# "storage_engine" were recorded. scripts/test-mtr.sh applies it to a copy of those results, so that
# the differences in *.rdiff are the engine's; `scripts/test-mtr.sh innodb` shows that it is so.

# SHOW CREATE TABLE names the collation, and utf8 is utf8mb3.
/ENGINE=/ { /COLLATE=/! s/DEFAULT CHARSET=latin1\( \|$\)/DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci\1/ }
/ENGINE=/ { /COLLATE=/! s/DEFAULT CHARSET=utf8\( \|$\)/DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_general_ci\1/ }
s/^\(  `.*\)CHARACTER SET utf8 /\1CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci /
s/^\(Collation\t\)utf8_general_ci/\1utf8mb3_general_ci/
s/^\(  `[a-z]*` char(8)\) COLLATE latin1_general_c[is] /\1 /
# SHOW INDEX says whether an index is ignored.
s/^Table\tNon_unique\tKey_name\t.*\tIndex_comment$/&\tIgnored/
s/^t[0-9]*\t[01]\t[^\t]*\t[0-9#]*\t\([^\t]*\t\)\{8\}[^\t]*$/&\tNO/
# ANALYZE TABLE collects statistics of the server's first.
s/^\(\(test\|mysqltest\)[^\t]*\)\tanalyze\tstatus\tOK$/\1\tanalyze\tstatus\tEngine-independent statistics collected\n&/
# A default of NULL is shown; the width of a literal is that of its type; TIMESTAMP columns update
# themselves only when told to; mtr.add_suppression is called with the server's new name.
s/^  `a` int(11),$/  `a` int(11) DEFAULT NULL,/
s/^  `1` int(1) NOT NULL DEFAULT 0/  `1` int(2) NOT NULL DEFAULT 0/
s/^\(ts\ttimestamp\t#\t#\t#\t\)on update current_timestamp()$/\1/
s/"MySQL thread id /"MariaDB thread id /
# A name given to a primary key is ignored with a warning; INTO behind the rest of a SELECT is deprecated.
/^ALTER TABLE t1 ADD CONSTRAINT PRIMARY KEY pk (a);$/a Warnings:\nWarning\t1280\tName 'pk' ignored for PRIMARY key.
/^PRIMARY KEY b (b(32))$/ { n; a Warnings:\nWarning\t1280\tName 'b' ignored for PRIMARY key.
}
/^PRIMARY KEY t (t(32))$/ { n; a Warnings:\nWarning\t1280\tName 't' ignored for PRIMARY key.
}
/^INTO OUTFILE '<DATADIR>\/select.out' $/ { n; n; a Warnings:\nWarning\t1287\t'<select expression> INTO <destination>;' is deprecated and will be removed in a future release. Please use 'SELECT <select list> INTO <destination> FROM...' instead
}
/ORDER BY t2.b, t1.a, t2.a, t1.b LIMIT 1$/ { n; a Warnings:\nWarning\t1287\t'<select expression> INTO <destination>;' is deprecated and will be removed in a future release. Please use 'SELECT <select list> INTO <destination> FROM...' instead
}
/^SELECT MIN(a), MAX(a) FROM t1 INTO @min, @max;$/a Warnings:\nWarning\t1287\t'<select expression> INTO <destination>;' is deprecated and will be removed in a future release. Please use 'SELECT <select list> INTO <destination> FROM...' instead
