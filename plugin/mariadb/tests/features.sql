-- Things of the server over our tables: HANDLER, sequences, temporary tables, partitions, versions.
create table t (id int primary key, a int, b varbinary(20), key(a));
insert into t values (1,10,'a'),(2,20,'b'),(3,20,'c'),(4,30,'d'),(5,null,'e');
handler t open; handler t read first; handler t read next; handler t read next limit 2;
handler t read `primary` first; handler t read `primary` next; handler t read `primary` last;
handler t read `primary` prev; handler t read `primary` = (3); handler t read `primary` > (3);
handler t read `primary` >= (9); handler t read `primary` < (2); handler t read `primary` <= (2);
handler t read a first; handler t read a next; handler t read a next; handler t read a last;
handler t read a prev; handler t read a = (20); handler t read a = (20) limit 5;
handler t read a >= (20) limit 3; handler t read a = (20) where b='c';
update t set b='z' where id=1; handler t read `primary` = (1);
handler t as h open; handler h read first; handler h close;
delete from t where id=2; handler t read `primary` first; handler t read `primary` next;
truncate t; handler t read first; handler t close;
drop table t;
-- Sequences: numbers are not taken back.
create sequence s start with 5 increment by 2 cache 3;
select nextval(s), nextval(s), lastval(s);
begin; select nextval(s); rollback; select nextval(s);
select setval(s, 101); select nextval(s);
create table st (id int primary key default nextval(s), a int); insert into st (a) values (1),(2);
select * from st order by id;
begin; insert into st (a) values (3); savepoint p; select nextval(s); rollback to p; commit;
select nextval(s);
flush tables; select nextval(s) > 100;
select minimum_value, start_value, increment, cache_size, cycle_option from s;
alter sequence s restart 7; select nextval(s); show create sequence s;
drop table st; drop sequence s;
create sequence s2 maxvalue 3 cycle; select nextval(s2), nextval(s2), nextval(s2), nextval(s2);
create sequence s3 maxvalue 2 nocache; select nextval(s3), nextval(s3); select nextval(s3);
drop sequence s2, s3;
-- Temporary tables.
create temporary table tt (id int primary key, a int, key(a));
insert into tt values (1,2),(2,1); select * from tt order by a;
begin; insert into tt values (3,3); savepoint p; insert into tt values (4,4); rollback to p;
select count(*) from tt; rollback; select count(*) from tt;
create table tt (id int primary key); insert into tt values (1);
alter table tt add column c int default 5; select * from tt order by id; truncate tt;
select count(*) from tt; drop temporary table tt; select * from tt; drop table tt;
create temporary table t3 as select seq as id from seq_1_to_100; select sum(id) from t3;
lock tables t3 write; insert into t3 values (101); select count(*) from t3; unlock tables;
rename table t3 to t4; select count(*) from t4; drop table t4;
-- Partitions.
create table p (id int, a int, b varbinary(10), primary key (id), key(a))
  partition by range (id) (partition p0 values less than (10), partition p1 values less than (20),
  partition p2 values less than maxvalue);
insert into p select seq, seq % 7, concat('x', seq) from seq_1_to_30;
select count(*), sum(a) from p; select id from p where a=3 order by id;
select id from p order by id desc limit 3; select partition_name, table_rows > 0 from
  information_schema.partitions where table_schema='x' and table_name='p' order by 1;
update p set id=id+100 where id=5; select id, b from p where id >= 30 order by id;
begin; delete from p where id < 15; select count(*) from p; rollback; select count(*) from p;
alter table p truncate partition p0; select count(*) from p;
alter table p drop partition p1; select count(*) from p;
alter table p reorganize partition p2 into (partition p2 values less than (25),
  partition p3 values less than maxvalue); select count(*) from p partition (p3);
create table e (id int, a int, b varbinary(10), primary key (id), key(a));
insert into e values (1, 1, 'exchanged'); alter table p exchange partition p0 with table e;
select * from p where id=1; select count(*) from e; drop table e;
create table e (id int, a int, b varbinary(10), primary key (id), key(a));
insert into e values (1000, 3, 'added'), (1500, 4, 'too'); create table f like e; alter table f add key (b);
alter table p drop partition p3; alter table p add partition (partition p4 values less than (1000));
alter table p convert table e to partition p5 values less than (1400);
alter table p convert table f to partition p5 values less than (2000);
alter table p convert table e to partition p5 values less than (2000); select id, b from p where a in (3, 4);
select count(*) from p partition (p5); show create table p; select * from e;
alter table p convert partition p5 to table e; select * from e; select id, b from p where a in (3, 4);
show create table p; show create table e; check table p, e; drop table e, f;
create table h (id int auto_increment primary key, a int) partition by hash (id) partitions 3;
insert into h (a) values (1),(2),(3),(4); insert into h values (50, 5); insert into h (a) values (6);
select * from h order by id; alter table h add partition partitions 2; select count(*) from h;
alter table h remove partitioning; select * from h order by id; drop table p, h;
-- System-versioned tables.
create table v (id int primary key, a int) with system versioning;
set timestamp=1000000; insert into v values (1,1),(2,2);
set timestamp=2000000; update v set a=10 where id=1;
set timestamp=3000000; delete from v where id=2; insert into v values (3,3);
set timestamp=default;
select * from v order by id; select count(*) from v for system_time all;
select id, a from v for system_time as of from_unixtime(1500000) order by id;
select id, a from v for system_time as of from_unixtime(2500000) order by id;
select id, a from v for system_time between from_unixtime(1) and from_unixtime(2999999)
  order by id, a;
delete history from v before system_time from_unixtime(2500000);
select id, a from v for system_time all order by id, a; alter table v drop system versioning;
select * from v order by id; drop table v;
-- Locks of tables.
create table l (id int primary key, a int); create table l2 (id int primary key);
lock tables l write; insert into l values (1,1); update l set a=2; select * from l;
insert into l values (1,5); insert into l values (2,5); select * from l2; unlock tables;
lock tables l read; select * from l; insert into l values (3,1); unlock tables;
set autocommit=0; lock tables l write; insert into l values (4,1); rollback; unlock tables;
select * from l order by id; set autocommit=1;
flush tables with read lock; select count(*) from l; unlock tables;
-- Triggers and functions: a statement is undone as a whole.
create table log (n int primary key);
delimiter //
create trigger tr before insert on l for each row insert into log values (new.a)//
create function f(n int) returns int begin insert into log values (n); return n; end//
create procedure pr() begin insert into l2 values (7); insert into l2 values (8),(7); end//
delimiter ;
insert into l values (10,100),(11,101),(12,100); select * from l order by id; select * from log;
insert into l values (10,100); select * from log;
insert into l2 select f(id) from l where id in (1,2,10); select * from l2 order by id;
select * from log order by n; call pr(); select * from l2 order by id;
drop function f; drop procedure pr; drop table l, l2, log;
-- HANDLER goes on from the place of a row that is gone.
create table t (id int primary key, a int, s varchar(10) collate utf8mb4_general_ci, key(a), key(s(2)));
insert into t values (1,10,'aa'),(2,20,'bbx'),(3,20,'BBy'),(4,20,'bbz'),(5,30,'c'),(6,40,'d');
handler t open; handler t read a = (20); delete from t where id=2; handler t read a next;
delete from t where id=3; handler t read a prev; handler t read a last;
delete from t where id=6; handler t read a prev; handler t read a next;
insert into t values (2,20,'bbx'),(3,20,'BBy'),(6,40,'d');
handler t read a = (20); handler t read a next; delete from t where id=3; handler t read a prev;
handler t read a next; handler t read a next; handler t read a next;
handler t read s first; handler t read s next; delete from t where id=2; handler t read s next;
handler t read s prev; handler t read `primary` = (4); delete from t where id=4;
handler t read `primary` prev; handler t read `primary` next; handler t close; drop table t;
-- Columns that SELECT * leaves out; periods of the application's time.
create table t (id int primary key, a int invisible default 7, b int); insert into t values (1, 2);
insert into t (id, a, b) values (2, 3, 4); select * from t; select id, a, b from t order by id;
alter table t alter a set default 8, modify b int invisible; insert into t values (3); select * from t;
select id, a, b from t where a > 3 order by id; drop table t;
create table t (id int, a int, s date, e date, period for x (s, e), unique (id, x without overlaps), key (a));
insert into t values (1, 1, '2020-01-01', '2020-06-01'), (1, 2, '2020-06-01', '2021-01-01');
insert into t values (1, 3, '2020-05-01', '2020-07-01'); insert into t values (2, 3, '2020-05-01', '2020-07-01');
update t set e='2020-07-01' where a=1; update t for portion of x from '2020-03-01' to '2020-04-01' set a=9;
select * from t order by id, s; delete from t for portion of x from '2020-02-01' to '2020-03-15';
select * from t order by id, s; select * from t where a=9 order by s; alter table t add b int default 5;
insert into t values (2, 3, '2020-06-30', '2020-07-02', 1); alter table t force;
select * from t order by id, s; check table t extended; drop table t;
-- A savepoint set again: those set between stay, also in prepared statements, procedures, functions.
create table sv (a int primary key, b int);
begin; insert into sv values (0,0); savepoint s0; insert into sv values (1,1); savepoint s2;
insert into sv values (2,2); savepoint s0; insert into sv values (3,3); rollback to s2; select * from sv;
insert into sv values (4,4); rollback to s2; rollback to s0; commit; select * from sv;
begin; insert into sv values (5,5); savepoint a; savepoint b; insert into sv values (6,6); savepoint c;
execute immediate 'savepoint a'; insert into sv values (7,7); release savepoint b; rollback to a; commit;
select * from sv;
delimiter |
create procedure sp() begin savepoint a; insert into sv values (11,1); savepoint b;
  insert into sv values (12,2); savepoint a; insert into sv values (13,3); rollback to b; end |
create function sf() returns int begin savepoint a; insert into sv values (21,1); savepoint b;
  insert into sv values (22,2); savepoint a; insert into sv values (23,3); rollback to b; return 1; end |
delimiter ;
begin; insert into sv values (10,0); call sp(); select * from sv; commit;
begin; insert into sv values (20,0); savepoint a; savepoint b; select sf(); select * from sv;
rollback to b; select * from sv; rollback to a; commit; select * from sv;
begin; insert into sv values (30,0); savepoint x; savepoint y; savepoint x; savepoint y; savepoint x;
insert into sv values (31,0); insert into sv values (32,0), (31,1); rollback to y; select * from sv;
rollback; drop procedure sp; drop function sf; drop table sv;
