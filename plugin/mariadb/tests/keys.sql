-- Keys over columns with collations, prefixes, both directions; hidden primary keys; virtual columns.
set names utf8mb4;
create table c (id int primary key, v varchar(30) collate utf8mb4_general_ci, b varchar(30) collate utf8mb4_bin,
  u varchar(30) collate utf8mb4_unicode_ci, n varchar(30) collate utf8mb4_nopad_bin, l char(10) character set latin1,
  t text, key v(v), key b(b), key u(u desc), key n(n), key l(l), key t(t(5)), key vb(v(3), b desc));
insert into c values (1,'abc','abc','abc','abc','abc','abcdef'),(2,'ABC','ABC','ABC','ABC','ABC','ABCDEG'),
 (3,'abc ','abc ','abc ','abc ','abc ','abcde'),(4,'ab\tc','ab\tc','ab\tc','ab\tc','ab\tc','ab\tc'),
 (5,'ab','ab','ab','ab','ab','ab'),(6,'','','','','',''),(7,null,null,null,null,null,null),
 (8,'äbc','äbc','äbc','äbc','äbc','äbc'),(9,'😀x','😀x','😀x','😀x','x','😀x'),(10,'straße','straße','straße','straße','straße','straße'),
 (11,'strasse','strasse','strasse','strasse','strasse','strasse'),(12,'ab\t','ab\t','ab\t','ab\t','ab\t','ab\t');
select id, v from c force index(v) order by v, id; select id, hex(b) from c force index(b) order by b, id;
select id, u from c force index(u) order by u desc, id; select id, hex(n) from c force index(n) order by n, id;
select id, l from c force index(l) order by l, id;
select v from c force index(v) where v='abc' order by id; select id from c force index(v) where v='Äbc' order by id;
select id,b from c force index(b) where b='abc' order by id; select id from c force index(u) where u='STRASSE' order by id;
select id from c force index(n) where n='abc'; select id from c force index(l) where l='abc' order by id;
select id from c force index(t) where t='abcde' order by id; select id from c force index(t) where t like 'abc%' order by id;
select id from c force index(v) where v between 'ab' and 'abd' order by v, id;
select id from c force index(v) where v > 'ab' order by v desc, id desc;
select id from c force index(u) where u < 'b' order by u, id;
select id from c force index(vb) where v like 'ab%' order by id; select max(v), min(u), max(b) from c;
update c set v='aBC' where id=1; select v from c force index(v) where v='abc' order by id;
update c set v=upper(v), b=lower(b); select v from c force index(v) where v='abc' order by id; select hex(b) from c force index(b) order by b, id;
delete from c where v='abc'; select id from c order by id;
alter table c add unique key uq(v, id), add key vl(v desc, l); select v, id from c force index(vl) order by v desc, id;
create table k (s varchar(40) collate utf8mb4_unicode_ci primary key, x int, key(x));
insert into k values ('b',1),('A',2),('a b',3),('ä',4); insert into k values ('a',9),('c',5),('B ',7);
insert ignore into k values ('a',9),('c',5),('B ',7);
insert into k values ('C',1) on duplicate key update x=77; replace into k values ('B',11);
select * from k order by s; select s, x from k force index(x) where x > 1 order by x; select * from k where s in ('a','B','zz') order by s;
update k set s='Ä' where x=2; select * from k order by s; update k set s='d' where s='c'; select * from k order by s desc;
delete from k where s='a'; select * from k order by s;
create table h (s varchar(700) collate utf8mb4_unicode_ci, y varchar(20), z int, primary key(s), unique key(y), key(z)) character set utf8mb4;
insert into h values (repeat('a',700),'one',1),('b','two',2),('c','three',2),('d',null,3),('e',null,1);
insert into h values ('B','four',4); insert into h values ('f','ONE',1);
insert ignore into h values ('B','four',4),('g','four',4),('h','TWO',1);
select left(s,3), y, z from h order by s; select left(s,3), z from h force index(z) where z=2 order by s; select z, left(s,2) from h order by z, s;
select z from h force index(z) where z>=1 order by z; select y from h where y='ONE'; select left(s,2) from h where s > 'b' order by s desc;
update h set z=z+1 where s='b'; update h set s='bb' where s='b'; delete from h where s='c'; select left(s,3),y,z from h order by s;
replace into h values ('bb','nine',9),('x','one',3); select left(s,3),y,z from h order by s;
create table p (a varchar(20), b varbinary(20), c blob, unique key(a(3)), key(b(2) desc), key(c(4)));
insert into p values ('abcd','abcd','abcdef'),('abd','ab','abcdee'),(null,'b','a'),(null,null,null); insert into p values ('ABCx','','');
insert ignore into p values ('ABCx','',''),('abx','ac','abcd');
select * from p force index(a) where a='abcd'; select * from p force index(a) where a like 'ab%' order by a; select hex(b) from p force index(b) where b >= 'ab' order by b desc;
select c from p force index(c) where c='abcdef'; select c from p force index(c) where c between 'abcd' and 'abcdz' order by c;
select c from p where c is null; delete from p where c='abcdef'; select * from p order by a,b;
create table g (a int, b varchar(20) as (concat('x',a)) virtual, d int as (a*2) stored, key(b), key(d), key ab(b,a)) ;
insert into g (a) values (3),(1),(2),(null); select b from g order by b; select a,b from g force index(ab) where b >= 'x2' order by b;
update g set a=a+10 where a<3; select a,b,d from g order by b; select b from g where b='x11'; delete from g where b='x3'; select a,b,d from g order by d;
create table lu (a text, b int, unique key(a), unique key(b)); insert into lu values ('one',1),('two',2),(null,3),(null,4);
insert into lu values ('ONE',9); insert ignore into lu values ('one',10),('three',1),('four',5); replace into lu values ('two',20);
insert into lu values ('one',30) on duplicate key update b=31; update lu set a='one' where b=5; select * from lu order by b;
-- REPLACE where keys that the server checks stand beside ones that the engine checks: every row in the way goes.
create table lr (id int primary key, t text, unique key(t)); insert into lr values (1,'a'),(2,'b'); replace into lr values (1,'b'); select row_count(); select * from lr;
replace into lr values (1,'c'),(3,'C'); select row_count(); insert into lr values (5,'e'),(6,'f'); replace into lr values (6,'e'),(5,'f'),(7,'e'); select row_count(); select * from lr order by id;
insert into lr values (9,'E') on duplicate key update id=8; insert into lr values (5,'x') on duplicate key update t='e'; insert into lr values (8,'x') on duplicate key update t='y'; update lr set t='f' where id=8; update lr set t='F' where t='f'; update lr set t=concat(t,'1'); select * from lr order by id;
create table lm (id int primary key, t text, u int, v text, unique key(t), unique key(u), unique key(v)); insert into lm values (1,'a',1,'a'),(2,'b',2,'b'),(3,'c',3,'c'),(4,'d',4,'d'),(5,'e',5,null);
replace into lm values (1,'b',3,'d'); select row_count(); select * from lm order by id; begin; replace into lm values (7,'e',3,null),(1,'E',9,'d'); select * from lm order by id; rollback; select * from lm order by id;
create table ln (t text, n int, unique key(t)); insert into ln values ('a',1),('b',2); replace into ln values ('A',3),('b',2); select row_count(); select * from ln order by n; drop table lr, lm, ln;
create table e (en enum('z','y','x'), st set('a','b','c'), bt bit(9), y year, key(en desc), key(st), key(bt), key(y desc, en));
insert into e values ('z','a',b'101',2001),('x','a,c',b'1',1999),('y','',b'111111111',2001),(null,null,null,null);
select en from e order by en desc; select st from e order by st; select hex(bt) from e where bt>1 order by bt; select y,en from e order by y desc,en; select en from e where en > 'y';
create table f (a int, b int, c int, primary key(a,b), key(c)); insert into f values (1,1,5),(1,2,5),(2,1,5),(2,2,6),(3,1,5);
select a,b from f force index(c) where c=5 and a=1; select a,b from f force index(c) where c=5 and a=2 and b=1; select a,b from f force index(c) where c=5 and a>1 order by a desc; select * from f force index(c) where c=5 and a in (1,3) order by a,b;
create table fc (a varchar(9), b int, primary key(a), key(b)) collate utf8mb4_general_ci; insert into fc values ('x',1),('Y',1),('z',2);
select a from fc force index(b) where b=1 and a='y'; select a,b from fc force index(b) where b=1 order by a; update fc set a='X' where a='x'; select a,b from fc force index(b) order by b,a;
-- Rows locked by an index over the beginning of long values; an index over numbers added where the primary key is text.
create table lp (id int primary key, n int, b longblob, key nb(n, b(2) desc), key(b(3)));
insert into lp values (1,1,repeat('a',70000)),(2,2,'x'),(3,3,repeat('b',5000)),(4,4,repeat('c',2000000));
update lp force index(nb) set n=n+10 where n >= 2; update lp force index(b) set b=concat('c',b) where b >= 'bb'; select id,n,length(b) from lp force index(b) where b >= 'b' order by id for update;
delete from lp where b like 'cc%'; select id,n,length(b),left(b,3) from lp order by id;
create table ck (a varchar(9) primary key, b int, c bigint not null) collate utf8mb4_general_ci; insert into ck values ('Ab',1,1),('cD',2,2);
alter table ck add key bc(b desc, c); select * from ck force index(bc) where b between 0 and 1; insert into ck values ('e',1,0); select * from ck force index(bc) order by b, c;
update ck set a='AB' where b=1 and c=1; select a,b from ck force index(bc) order by b, a; drop table lp, ck;
handler f open; handler f read c >= (5); handler f read c next; handler f read c prev; handler f read c = (6); handler f read c next; handler f read c last; handler f read c <= (5); handler f read c > (5); handler f read c < (6); handler f read c first; handler f close;
select ordinal_position from information_schema.columns where table_name='fc' order by 1;
drop table c,k,h,p,g,lu,e,f,fc;
-- What ANALYZE finds out of 100, 700 and 192 different values, in equal groups and in some that differ by ten. InnoDB doubles its numbers.
create table st (id int primary key, a int, b int, c int, key ab(a,b), key c(c));
insert into st select seq, seq % 100, seq % 700, if(seq % 11 = 0, 1000 + seq div 110, seq div 100) from seq_1_to_10000;
analyze table st;
select index_name, seq_in_index, cardinality between 50 and 220 from information_schema.statistics where table_name='st' and index_name='ab' and seq_in_index=1;
select index_name, seq_in_index, cardinality between 350 and 1540 from information_schema.statistics where table_name='st' and index_name='ab' and seq_in_index=2;
select index_name, cardinality between 95 and 385 from information_schema.statistics where table_name='st' and index_name='c';
drop table st;
-- Locked reads and changes by a key alone that has a virtual column: the server does not make it there.
create table w (id int primary key, a int, c int, g varchar(40) as (concat('v', a div 3)) virtual, key(g), key cg(c, g));
insert into w (id, a, c) values (1,-8,1),(2,-7,1),(3,5,2),(4,null,2),(5,4,3);
select g from w force index(g) where g <= 'v-2' for update; select g from w force index(g) lock in share mode;
select id, g from w force index(cg) where c between 1 and 2 and g is not null order by id for update;
update w set c = 9 where g <= 'v-2'; select row_count(); update w set c=8 where c=2 and g='v1'; select row_count();
update w set c=c+1 where g>'v' order by g desc, id limit 3; select row_count(); select * from w order by id;
update w x, w y set x.c=77 where x.g=y.g and y.g>'v0'; select row_count(); select * from w order by id;
delete from w where g='v1' order by g, id limit 1; select row_count(); select * from w order by id; drop table w;
-- A range behind a prefix: conditions on the entry, which has the prefix only as weights.
create table px (id int primary key, n int, t text character set ucs2, key k (t(100) desc, n), key m (t(4), n));
insert into px values (52,57,'abd'),(28,10,'S'),(1,36,'10'),(2,37,'10'),(3,3,'10'),(4,40,'10 and more');
select id from px force index (k) where t = '10' and n >= 30 order by id;
select id from px force index (k) where t = '10' and n < 37 order by id; select id from px force index (k) where t = '10' and n between 36 and 40;
select id from px force index (m) where t = '10 and more' and n > 1; select id from px force index (m) where t in ('10', 'S') and n <= 36 order by id;
select id from px force index (k) where t = '10' and n > 30 order by n desc; drop table px;
-- Big5: in an index by the codes of characters, which is how the server compares them.
create table bg (id int primary key, v varchar(20) character set big5 collate big5_chinese_ci, n varchar(20) character set big5 collate big5_chinese_nopad_ci, unique key (v), key n (n desc, v(2)));
insert into bg values (1,'一','一'),(2,'龍','龍'),(3,'人','人 '),(4,'a人','A人'),(5,'B','b'),(6,'人人','人人'),(7,'',''),(8,null,null),(10,'丁a','丁'),(11,'鑰b','鑰');
insert into bg values (9,'A人','x'); insert into bg values (9,'人  ','x'); insert ignore into bg values (9,'丁A','y'); update bg set v='b ' where id=2;
select id, v from bg force index (v) order by v; select id from bg force index (v) where v > '一' order by v desc; select id, v from bg force index (v) where v between 'a' and '丁z' order by v;
select id from bg force index (v) where v='A人'; select id, n from bg force index (n) where n >= '' order by n desc; select id from bg force index (n) where n='人'; select id from bg force index (n) where n like '人%' order by id;
delete from bg where v='b'; update bg set v='人' where v='龍'; update bg set v='龜' where v='龍'; select id, v from bg force index (v) order by v; drop table bg;
