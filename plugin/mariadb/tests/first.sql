-- The first path through the engine: every statement must give on EVENKEEL what it gives on InnoDB.
create table t (id int primary key auto_increment, a int, b varbinary(20), c double,
  d decimal(10,2), e datetime(3), f varchar(100), key(a), unique key(b));
insert into t (a,b,c,d,e,f) values (1,'x',1.5,3.14,'2024-01-02 03:04:05.678','one'),
  (2,'y',-2.5,-3.14,'1999-12-31 23:59:59','two'),(2,'z',0,0,null,null);
select * from t order by id;
select a from t where a=2;
select id, b from t where b='y';
select id, a from t where a>=2 order by a desc, id desc;
select id from t where b > 'x' order by b;
select max(a), min(b) from t;
insert into t (a,b) values (5,'x');
insert ignore into t (a,b) values (5,'x'),(6,'w');
insert into t (id,a,b) values (1,0,'k') on duplicate key update a=77;
replace into t (id,a,b) values (2,8,'z');
select id,a,b from t order by id;
update t set a=a+10 where a>=8;
update t set id=id+100 where id=1;
select id,a from t order by a, id;
delete from t where id=101;
begin; insert into t (id,a,b) values (200,100,'q'); savepoint s1;
insert into t (id,a,b) values (201,101,'r'); update t set a=0; rollback to s1; commit;
select id,a,b from t order by id;
begin; delete from t; select count(*) from t; rollback; select count(*) from t;
alter table t add column z int default 7;
select id,z from t order by id limit 2;
create table u as select * from t;
select count(*), sum(a) from u;
select t.id, u.a from t join u on t.id=u.id where u.a>0 order by t.id;
update t, u set t.a=1, u.a=2 where t.id=u.id and t.id=200;
select t.a, u.a from t join u on t.id=u.id where t.id=200;
truncate t; select count(*) from t; insert into t (a,b) values (1,'n'); select id from t;
create table n (a int, b blob, key(a));
insert into n values (null,'1'),(3,repeat('b',70000)),(null,'2'),(1,'3');
select a, length(b), crc32(b) from n order by a, b;
select length(b) from n where a is null order by b;
select length(b) from n where a <=> null order by b;
delete from n where a is null; select a from n order by a;
create table types (i tinyint primary key, u bigint unsigned, s smallint, m mediumint unsigned,
  y year, dt date, tm time(6), ts timestamp(2) null, bt bit(11), en enum('p','q','r'),
  st set('a','b','c'), ch char(5), bin binary(3), fl float, tx text, key(u), key(dt), key(tm),
  key(en), key(bt), key(y), key(fl), key(bin), key(s desc));
insert into types values (-128,18446744073709551615,-32768,16777215,1901,'1000-01-01',
  '-838:59:59.999999','2000-01-01 00:00:00.25',b'11111111111','r','a,c','ab','xy',-1.5,'text'),
  (127,0,32767,0,2155,'9999-12-31','838:59:59','2037-01-01',b'0','p','','','',3.25,''),
  (0,null,null,null,null,null,null,null,null,null,null,null,null,null,null);
select i,u,s,m,y,dt,tm,ts,hex(bt),en,st,ch,hex(bin),fl,tx from types order by i;
select u from types order by u; select dt from types order by dt; select tm from types order by tm;
select en from types order by en; select hex(bt) from types order by bt;
select y from types order by y desc; select fl from types order by fl;
select hex(bin) from types where bin is not null order by bin; select s from types order by s desc;
rename table t to t2; select count(*) from t2;
drop table t2, u, n, types;
-- Rows that get the values they have are not changed, read or not.
create table w (id int, a tinyint, c bigint unsigned, b blob, s varchar(20), n decimal(9,2), key(a));
insert into w values (30,1,5,'b','s',1.5),(31,1,null,null,null,null),(30,2,5,'b','s',1.5),(30,3,null,repeat('x',20000),'','0');
update w set id=30 where a<2; select row_count(); update w set c=5 where a<3; select row_count();
update w set b='b' where a=2; select row_count(); update w set b=null, s=null where a=1; select row_count();
update w set b=repeat('x',20000), s='' where a=3; select row_count(); update w set n=1.50, s='s' where a between 1 and 2; select row_count();
update w set id=id, c=null where a=3 order by a; select row_count(); update w x, w y set x.c=5 where x.a=2 and y.a=x.a; select row_count();
select id, a, c, left(b,3), length(b), s, n from w order by a, id, c, s; drop table w;
create table w (id int primary key, a int unique, b int, c int) ; insert into w values (1,1,1,1),(2,2,2,2);
update w set b=1 where id=1; select row_count(); update w set a=1, b=1 where id=1; select row_count();
insert into w (id, a) values (1,9) on duplicate key update b=1; select row_count(); insert into w (id, a) values (1,9) on duplicate key update b=7; select row_count();
replace into w values (1,1,7,1); select row_count(); replace into w values (3,2,2,2); select row_count(); update w set c=c, b=9 where a=2; select row_count();
insert into w values (3,1,0,0) on duplicate key update c=values(c), a=a; select row_count(); update ignore w set a=1 where id=3; select row_count(); select * from w order by id; drop table w;
