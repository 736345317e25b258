-- Foreign keys: definitions, checks, errors, schema changes, tables that are made later. Both engines print the same.
create table p (id int primary key, code varchar(20) unique, n int) charset=utf8mb4;
create table c (id int primary key, p int, code varchar(30), constraint to_id foreign key (p) references p (id),
  foreign key (code) references p (code) on delete no action on update no action) charset=utf8mb4;
show create table c;
create table d (id int primary key, p int not null references p (id));
show create table d;
insert into p values (1,'one',0),(2,'two',0),(3,'three',0);
insert into c values (1,1,'two'),(2,null,'ONE'),(3,null,null);
insert into c values (4,9,null);
insert into c values (4,1,'four');
insert into c values (4,1,null),(5,9,null),(6,2,null);
select * from c order by id;
insert ignore into c values (4,1,null),(5,9,null),(6,2,null);
select * from c order by id;
update c set p=8 where id=1;
update ignore c set p=p+1 where p is not null;
select * from c order by id;
delete from p where id=1;
delete from p where id=2;
delete ignore from p;
select * from p order by id;
update p set id=id+10;
update p set code='zwei' where id=2;
update p set n=5 where id=2;
replace into p values (2,'two',7);
replace into p values (3,'three',7);
insert into p values (2,'x',1) on duplicate key update n=9;
insert into p values (2,'x',1) on duplicate key update id=20;
select * from p order by id;
insert into c select id+100, id, null from p;
insert into c select id+200, id+5, null from p;
select count(*) from c;
-- dropping, emptying
drop table p;
truncate p;
truncate c;
select count(*) from c;
alter table c drop index to_id;
alter table p drop index code;
alter table c drop column p;
alter table p drop column code;
alter table c modify p bigint;
alter table p modify id bigint;
alter table c engine=memory;
alter table p engine=memory;
create or replace table p (id int);
-- the views
select constraint_name, table_name, unique_constraint_name, match_option, update_rule, delete_rule, referenced_table_name
  from information_schema.referential_constraints where constraint_schema='x' order by 1, 2;
select constraint_name, table_name, column_name, ordinal_position, position_in_unique_constraint, referenced_table_schema,
  referenced_table_name, referenced_column_name from information_schema.key_column_usage
  where table_schema='x' order by table_name, constraint_name, ordinal_position;
select constraint_name, table_name, constraint_type from information_schema.table_constraints
  where table_schema='x' order by 2, 1;
-- renames follow
rename table p to p2;
show create table c;
alter table p2 change id ident int;
alter table c change p parent int;
show create table c;
rename table c to c2;
show create table c2;
insert into c2 values (1,99,null);
insert into c2 values (1,1,null);
alter table c2 drop foreign key nosuch;
alter table c2 drop foreign key if exists nosuch;
alter table c2 drop foreign key TO_ID;
show create table c2;
insert into c2 values (2,99,null);
drop table p2;
drop table c2, d;
drop table p2;
-- names
create table p (id int primary key);
create table a (id int primary key, constraint one foreign key (id) references p (id));
create table b (id int primary key, constraint one foreign key (id) references p (id));
create table b (id int primary key, constraint two foreign key (id) references p (id), constraint TWO foreign key (id) references p (id));
create table b (i int, j int, foreign key (i) references p (id), foreign key idx (j) references p (id));
show create table b;
drop table a, b;
-- what is not possible
create table a (i int, foreign key (i) references nosuch (id));
create table a (i int, foreign key (i) references p (nosuch));
create table a (i bigint, foreign key (i) references p (id));
create table a (i int unsigned, foreign key (i) references p (id));
create table a (i mediumint, foreign key (i) references p (id));
create table a (i int, j int, foreign key (i, j) references p (id));
create temporary table a (i int, foreign key (i) references p (id));
create table a (i int, foreign key (i) references p (id)) partition by hash (i);
create table a (i int, foreign key (nosuch) references p (id));
create table s (v varchar(10) collate utf8mb4_bin primary key);
create table a (v varchar(10) collate utf8mb4_general_ci, foreign key (v) references s (v));
create table a (v varchar(30) collate utf8mb4_bin, foreign key (v) references s (v));
insert into s values ('a'); insert into a values ('a'); insert into a values ('A');
drop table a, s;
show tables;
-- a table that refers to itself
create table t (id int primary key, boss int, foreign key (boss) references t (id));
insert into t values (1,1); insert into t values (2,3); insert into t values (2,1),(3,2);
delete from t where id=2; delete from t where id=3; delete from t where id=2;
truncate t; insert into t values (1,null); rename table t to u; insert into u values (2,1),(3,9); insert into u values (2,1);
show create table u;
drop table u;
-- several columns, in another order, and parts that are null
create table k (a int, b int, c int, primary key (a, b));
create table l (id int primary key, x int, y int, foreign key (x, y) references k (a, b));
insert into k values (1,2,0),(2,1,0); insert into l values (1,1,2),(2,2,1),(3,null,7),(4,7,null);
insert into l values (5,1,1); update l set y=1 where id=1; delete from k where a=1; delete from l where id=1; delete from k where a=1;
show create table l;
drop table l, k, p;
-- foreign_key_checks
set foreign_key_checks=0;
create table c (id int primary key, p int, foreign key (p) references p (id));
insert into c values (1,1),(2,7);
set foreign_key_checks=1;
insert into c values (3,1); insert into c values (3,null); update c set p=2 where id=1; delete from c where id=2;
show create table c;
select unique_constraint_name, referenced_table_name from information_schema.referential_constraints where constraint_schema='x';
create table p (id bigint primary key);
create table p (id int);
create table p (id int primary key);
insert into c values (4,1); insert into p values (1),(2); insert into c values (4,1); delete from p where id=2; delete from p where id=1;
drop table p;
set foreign_key_checks=0;
drop table p;
set foreign_key_checks=1;
insert into c values (5,1); select * from c order by id;
create table q (id int primary key); insert into q values (1);
rename table q to p;
insert into c values (5,1); delete from p;
set foreign_key_checks=0; truncate p; set foreign_key_checks=1;
insert into c values (6,1);
drop table c, p;
-- copies
create table p (id int primary key, a int); create table c (id int primary key, p int, foreign key (p) references p (id));
insert into p values (1,1),(2,2); insert into c values (1,1);
alter table p add b int, algorithm=copy; insert into c values (2,9); insert into c values (2,2); delete from p where id=2;
alter table c add b int, algorithm=copy; show create table c; insert into c values (3,9,1); delete from p where id=2;
alter table p force, algorithm=copy; alter table c force, algorithm=copy; insert into c values (3,9,1); delete from p where id=2;
rename table c to cc; alter table cc add e int, algorithm=copy; delete from p where id=2; insert into cc values (3,9,1,1);
rename table p to pp; alter table pp add e int, algorithm=copy; show create table cc; delete from pp where id=2; insert into cc values (3,9,1,1);
alter table cc drop foreign key cc_ibfk_1, algorithm=copy; show create table cc;
drop table pp, cc;
create table t (id int primary key, boss int, foreign key (boss) references t (id)); insert into t values (1,1),(2,1);
alter table t add a int, algorithm=copy; insert into t values (3,9,1); delete from t where id=1; delete from t where id=2; show create table t;
drop table t;
-- added to tables
create table p (id int primary key); create table c (id int primary key, p int);
insert into p values (1),(2); insert into c values (1,1),(2,9);
delete from c where id=2;
alter table c add foreign key (p) references p (id), algorithm=copy; show create table c; insert into c values (3,9); delete from p where id=1;
alter table c add constraint e_again foreign key (p) references p (id); show create table c; insert into c values (3,9);
alter table c drop foreign key e_again, drop foreign key c_ibfk_1; show create table c; insert into c values (3,9);
set foreign_key_checks=0; alter table c add constraint again foreign key (p) references p (id); set foreign_key_checks=1;
insert into c values (4,9); select * from c order by id; show create table c;
drop table c, p;
-- transactions
create table p (id int primary key) ; create table c (id int primary key, p int, foreign key (p) references p (id));
begin; insert into p values (1); insert into c values (1,1); savepoint s; insert into c values (2,2); delete from p; delete from c; delete from p;
rollback to s; select * from p; select * from c; rollback; select * from p; select * from c;
begin; insert into p values (1); insert into c values (1,1); commit; delete from p; select * from p;
-- a database of its own
create database y; create table y.c (id int primary key, p int, foreign key (p) references x.p (id)); insert into y.c values (1,5); insert into y.c values (1,1);
show create table y.c; drop database x; show tables from x; create table y.p (id int primary key); create table y.e (id int primary key references y.p (id));
drop database y;
drop table c; drop table p;
