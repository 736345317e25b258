"""SQLAlchemy on ENGINE=EVENKEEL: orm.py SOCKET. Tables, reflection, units of work, savepoints, locks,
a version counter that catches a lost update, deletes that cascade in the session."""

import datetime
import decimal
import sys

from sqlalchemy import (JSON, DateTime, Numeric, String, create_engine, func, inspect, select, text,
                        update)
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship
from sqlalchemy.orm.exc import StaleDataError

URL = "mariadb+pymysql://root@localhost/{}?unix_socket=" + sys.argv[1]
with create_engine(URL.format("")).connect() as server:
    server.execute(text("create or replace database orm"))
ENGINE = create_engine(URL.format("orm"))


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    __table_args__ = {"mariadb_engine": "EVENKEEL"}
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50), unique=True)
    balance: Mapped[decimal.Decimal] = mapped_column(Numeric(20, 4), default=0)
    made: Mapped[datetime.datetime] = mapped_column(DateTime, server_default=func.now())
    data: Mapped[dict] = mapped_column(JSON, default=dict)
    version: Mapped[int] = mapped_column()
    orders: Mapped[list["Order"]] = relationship(
        back_populates="customer", cascade="all, delete-orphan",
        primaryjoin="Customer.id == foreign(Order.customer_id)")
    __mapper_args__ = {"version_id_col": version}


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"mariadb_engine": "EVENKEEL"}
    id: Mapped[int] = mapped_column(primary_key=True)
    customer_id: Mapped[int] = mapped_column(index=True)
    item: Mapped[str] = mapped_column(String(30))
    customer: Mapped[Customer] = relationship(
        back_populates="orders", primaryjoin="Customer.id == foreign(Order.customer_id)")


def same(found, wanted):
    if found != wanted:
        raise SystemExit(f"{found!r}, not {wanted!r}")


def raises(errors, work):
    try:
        work()
    except errors:
        return
    raise SystemExit(f"no error of {errors}")


Base.metadata.create_all(ENGINE)
same(inspect(ENGINE).get_table_options("customer")["mariadb_engine"], "EVENKEEL")
same([i["column_names"] for i in inspect(ENGINE).get_indexes("orders")], [["customer_id"]])
with Session(ENGINE) as session:
    session.add_all(Customer(name=f"c{i}", balance=i, data={"k": [i]},
                             orders=[Order(item=f"i{n}") for n in range(i % 4)])
                    for i in range(400))
    session.commit()
    locked = session.scalar(select(Customer).where(Customer.name == "c7").with_for_update())
    locked.balance += 5
    session.flush()
    with session.begin_nested() as savepoint:
        locked.balance = 0
        session.flush()
        savepoint.rollback()
    session.commit()
    same(locked.balance, 12)
    session.add(Customer(name="c7"))
    raises(IntegrityError, session.commit)
    session.rollback()
    same(session.scalar(select(func.count()).select_from(Customer)), 400)
    same(session.scalar(select(func.count()).select_from(Order)), 600)
    same(session.scalar(select(Customer.name).where(Customer.data["k"][0].as_integer() == 9)), "c9")
    same(session.scalar(select(func.count()).select_from(Order).join(Order.customer)
                        .where(Customer.balance > 200)), 300)
    seen = session.scalar(select(Customer).where(Customer.name == "c11"))
    session.commit()
    stale = seen.version
    with Session(ENGINE) as other:
        other.execute(update(Customer).where(Customer.id == seen.id).values(version=stale + 1))
        other.commit()
    seen.balance = 1
    # The session's snapshot is older than the other's update: the engine refuses first, with 1020.
    raises((OperationalError, StaleDataError), session.commit)
    session.rollback()
    session.delete(session.scalar(select(Customer).where(Customer.name == "c399")))
    session.commit()
    same(session.scalar(select(func.count()).select_from(Order)), 597)
Base.metadata.drop_all(ENGINE)
