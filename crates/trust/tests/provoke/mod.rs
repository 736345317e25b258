//! One provocation for each error: a misuse of the public API, a fault of the environment, or a
//! crafted file. `layers` has the provocations below the public API.

pub mod layers;

use evenkeel::ValueRef::{Int, Null, Text};
use evenkeel::{
    Access, BuildProgress, Chunking, Code, Collations, ColumnSpec, ColumnType, Database, Error,
    ForeignKeySpec, Geometry, IndexSpec, Isolation, LockWait, Options, PartSpec, ReferenceAction,
    Row, TableSpec, TimeUnit, Txn, Value,
};
use evenkeel_base::{DatabaseId, Lsn, PageNo, crc32c};
use evenkeel_format::superblock::{SLOT_BYTES, Superblock};
use evenkeel_format::{limits, page, wal};
use evenkeel_io::{Env, MemEnv, OpenMode, RealEnv, Runtime};
use evenkeel_log::{Log, LogOptions, Share};
use evenkeel_sched::Scheduler;
use evenkeel_trust::faulty::{self, FaultyEnv, Op};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

type Provocation = (Code, &'static [&'static str], fn() -> Error);

fn column(name: &str) -> ColumnSpec {
    ColumnSpec::new(name, ColumnType::Int64)
}

fn spec() -> TableSpec {
    TableSpec::new()
        .column(column("id"))
        .column(column("a").nullable())
        .column(ColumnSpec::new("name", ColumnType::Text { max: 40 }))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_a", &["a"]).unique())
}

/// Without a primary key yet; a chunk for each minute.
fn chunked() -> TableSpec {
    let by_minute = Chunking::by("at", Duration::from_secs(60)).unit(TimeUnit::Seconds);
    TableSpec::new()
        .column(column("id"))
        .column(column("at"))
        .chunked(by_minute.between(0, 1 << 40))
}

fn with_chunks() -> Database {
    let db = memory();
    db.create_table("c", &chunked().primary_key(&["id", "at"])).expect("creates");
    db
}

fn on(env: Arc<dyn Env>) -> Options {
    Options::default().env(env)
}

fn memory() -> Database {
    let db = Database::open_with("dir", Options::in_memory()).expect("opens");
    db.create_table("t", &spec()).expect("creates");
    write(&db, |txn| txn.table("t")?.insert(&[Int(1), Int(1), Text("one")]).map(|_| ()));
    db
}

fn begin(db: &Database) -> Txn {
    let mut txn = db.begin(Isolation::RepeatableRead, Access::ReadWrite).expect("begins");
    txn.set_lock_wait(Duration::from_millis(20));
    txn
}

fn write(db: &Database, f: impl FnOnce(&mut Txn) -> evenkeel::Result<()>) {
    let mut txn = begin(db);
    f(&mut txn).expect("writes");
    txn.commit().expect("commits");
}

/// The error of a statement on the table.
fn statement<R>(f: impl FnOnce(&mut evenkeel::TableRef<'_>) -> evenkeel::Result<R>) -> Error {
    let db = memory();
    let txn = begin(&db);
    failed(f(&mut txn.table("t").expect("there")))
}

fn failed<R>(result: evenkeel::Result<R>) -> Error {
    match result {
        Err(error) => error,
        Ok(_) => panic!("it did not fail"),
    }
}

/// A table whose foreign key refers to this column of the usual one, or why there is none.
fn family(of: &str) -> (Database, Error) {
    let db = memory();
    let spec = TableSpec::new()
        .column(column("id"))
        .column(column("parent"))
        .primary_key(&["id"])
        .index(IndexSpec::new("by_parent", &["parent"]))
        .foreign_key(ForeignKeySpec::new("k", &["parent"], "t", &[of]));
    let made = db.create_table("child", &spec);
    (db, made.err().unwrap_or_else(|| Error::new(Code::Internal)))
}

fn create(spec: TableSpec) -> Error {
    failed(memory().create_table("u", &spec))
}

/// A closed database with some rows and runs.
fn closed() -> Arc<MemEnv> {
    let env = Arc::new(MemEnv::new());
    fill(&Database::open_with("dir", small(env.clone())).expect("opens"));
    env
}

/// The same database as a kill leaves it.
fn killed() -> Arc<MemEnv> {
    let (env, faults) = FaultyEnv::new();
    let db = Database::open_with("dir", small(env.clone())).expect("opens");
    fill(&db);
    faults.frozen.store(true, SeqCst);
    drop(db);
    env.copy()
}

fn small(env: Arc<dyn Env>) -> Options {
    let generation_bytes = Some(64 << 10);
    on(env).geometry(Geometry { generation_bytes, ..Geometry::default() })
}

fn fill(db: &Database) {
    db.create_table("t", &spec()).expect("creates");
    for batch in 0..20 {
        write(db, |txn| {
            let table = txn.table("t")?;
            for id in batch * 100..batch * 100 + 100 {
                table.insert(&[Int(id), Int(id), Text("somewhat longer than it need be")])?;
            }
            Ok(())
        });
    }
}

/// Opens and reads everything. Returns the first error; panics if there is none.
fn open_and_read(env: Arc<dyn Env>) -> Error {
    match Database::open_with("dir", small(env)) {
        Err(error) => error,
        Ok(db) => read_all(&db),
    }
}

fn read_all(db: &Database) -> Error {
    let txn = db.begin(Isolation::ReadCommitted, Access::ReadOnly).expect("begins");
    let read = || -> evenkeel::Result<()> {
        let (mut row, all) = (Row::new(), evenkeel::Range::ALL);
        let mut scan = txn.table("t")?.scan(all, evenkeel::Direction::Forward)?;
        while scan.next(&mut row)? {}
        let index = txn.table("t")?.index("by_a")?.keys_only();
        let mut scan = index.scan(all, evenkeel::Direction::Forward)?;
        while scan.next(&mut row)? {}
        Ok(())
    };
    if let Err(error) = read() {
        return error;
    }
    panic!("nothing was found wrong")
}

/// The id of the database of these files; checksums begin with it.
fn database(env: &dyn Env) -> DatabaseId {
    let slots = faulty::content(env, "evenkeel.super");
    Superblock::choose(&slots).expect("a superblock").database_id
}

/// The error of reading a closed database in which a file was changed.
fn spoiled(prefix: &str, change: impl Fn(&mut Vec<u8>, DatabaseId)) -> Error {
    let env = closed();
    let database = database(&*env);
    for path in faulty::paths(&*env).iter().filter(|p| p.starts_with(prefix)) {
        let mut bytes = faulty::content(&*env, path);
        change(&mut bytes, database);
        faulty::replace(&*env, path, &bytes);
    }
    open_and_read(env)
}

/// The error of reading a closed database whose tree pages were changed.
fn leaves(change: impl Fn(&mut [u8], usize, DatabaseId)) -> Error {
    spoiled("pages/", |bytes, db| {
        for (i, image) in bytes.chunks_exact_mut(4096).enumerate() {
            if page::kind(image) == Some(page::PageKind::Tree) {
                change(image, i, db);
            }
        }
    })
}

fn log_options() -> LogOptions {
    LogOptions { log_bytes: 1 << 20, buffer_bytes: 64 << 10, epoch: 1 }
}

fn small_log() -> Arc<Log> {
    let rt = Runtime::new(Arc::new(MemEnv::new()));
    Log::create(rt, log_options(), Lsn(0)).expect("a log")
}

fn real(dir: &str) -> RealEnv {
    RealEnv::new(std::path::Path::new(dir))
}

fn deadlock() -> Error {
    let db = memory();
    write(&db, |txn| txn.table("t")?.insert(&[Int(2), Int(2), Text("two")]).map(|_| ()));
    let (mut a, mut b) = (begin(&db), begin(&db));
    for txn in [&mut a, &mut b] {
        txn.set_lock_wait(Duration::from_secs(50));
    }
    let update = |txn: &mut Txn, id| txn.table("t")?.update(&[Int(id)], &[(1, Null)]).map(|_| ());
    update(&mut a, 1).expect("free");
    update(&mut b, 2).expect("free");
    let other = std::thread::spawn(move || (update(&mut b, 1).err(), drop(b)).0);
    let mine = update(&mut a, 2).err();
    drop(a);
    mine.or(other.join().expect("no panic")).expect("one of them is the victim")
}

fn locked(wait: LockWait) -> Error {
    let db = memory();
    let (a, b) = (begin(&db), begin(&db));
    a.table("t").expect("there").delete(&[Int(1)]).expect("free");
    let mut row = Row::new();
    failed(b.table("t").expect("there").get_for_update(&[Int(1)], wait, &mut row))
}

fn cancelled() -> Error {
    let db = memory();
    let (a, mut b) = (begin(&db), begin(&db));
    a.table("t").expect("there").delete(&[Int(1)]).expect("free");
    b.set_lock_wait(Duration::from_secs(50));
    let canceller = b.canceller();
    let waits = std::thread::spawn(move || {
        failed(b.table("t").expect("there").update(&[Int(1)], &[(1, Null)]))
    });
    while !waits.is_finished() {
        canceller.cancel();
        std::thread::yield_now();
    }
    waits.join().expect("no panic")
}

fn prepared(xid: &[u8], again: &[u8]) -> Error {
    let db = memory();
    let txn = begin(&db);
    txn.table("t").expect("there").update(&[Int(1)], &[(1, Null)]).expect("updates");
    txn.prepare(xid).expect("prepares");
    let txn = begin(&db);
    txn.table("t").expect("there").insert(&[Int(5), Null, Text("")]).expect("inserts");
    let error = failed(txn.prepare(again));
    db.rollback_prepared(xid).expect("rolls back");
    error
}

/// The error of a commit whose calls on the log fail, and the error of the next statement.
fn stopped(op: Op, code: Code) -> (Error, Error) {
    let (env, faults) = FaultyEnv::new();
    let db = Database::open_with("dir", on(env)).expect("opens");
    db.create_table("t", &spec()).expect("creates");
    let txn = begin(&db);
    txn.table("t").expect("there").insert(&[Int(1), Null, Text("")]).expect("inserts");
    faults.fail(Some((op, "wal/", code)));
    let first = failed(txn.commit());
    faults.fail(None);
    let txn = match db.begin(Isolation::RepeatableRead, Access::ReadWrite) {
        Err(error) => return (first, error),
        Ok(txn) => txn,
    };
    let table = txn.table("t").expect("there");
    (first, failed(table.insert(&[Int(2), Null, Text("")])))
}

/// The definition of a table with an index in the order of a collation.
fn collated() -> TableSpec {
    let part = PartSpec { column: "name".into(), collation: 7, ..PartSpec::default() };
    let index = IndexSpec { name: "by_name".into(), parts: vec![part], unique: false };
    let name = ColumnSpec::new("name", ColumnType::Bytes { max: 9 });
    TableSpec::new().column(column("id")).column(name).primary_key(&["id"]).index(index)
}

/// Collations whose weights have a first or a second version.
struct Version(u32);

impl Collations for Version {
    fn weights(
        &self,
        _collation: u16,
        _chars: u32,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> evenkeel::Result<()> {
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn bytes_max(&self, _collation: u16, _chars: u32, bytes: u32) -> usize {
        2 * bytes as usize
    }

    fn checksum(&self, _collation: u16) -> Option<u32> {
        Some(self.0)
    }
}

fn collation_changed() -> Error {
    let env = Arc::new(MemEnv::new());
    let open = |by: &'static Version| {
        let options = Options { collations: Some(by), ..on(env.clone()) };
        Database::open_with("dir", options).expect("opens")
    };
    let db = open(&Version(1));
    db.create_table("c", &collated()).expect("made");
    db.close().expect("closes");
    let db = open(&Version(2));
    let txn = begin(&db);
    let row = [Int(1), evenkeel::ValueRef::Bytes(b"x")];
    failed(txn.table("c").expect("there").insert(&row))
}

fn wide(columns: usize) -> TableSpec {
    let first = TableSpec::new().column(column("id")).primary_key(&["id"]);
    (1..columns).fold(first, |spec, i| spec.column(column(&format!("c{i}")).nullable()))
}

fn versions(at: usize) -> Error {
    spoiled("evenkeel.super", |bytes, _| {
        for slot in bytes.chunks_exact_mut(SLOT_BYTES) {
            slot[at] = 9;
            let crc = crc32c(0, &slot[12..]);
            slot[8..12].copy_from_slice(&crc.to_le_bytes());
        }
    })
}

/// Every error that can be provoked from outside.
pub const ALL: &[Provocation] = &[
    (Code::Internal, &["panicked"], || {
        let env = MemEnv::new();
        let task = env.spawn("doomed", Box::new(|| panic!("on purpose"))).expect("spawns");
        failed(task.join())
    }),
    (Code::WritesStopped, &[], || stopped(Op::Sync, Code::SyncFailed).1),
    (Code::FileMissing, &["file=pages/"], || {
        let env = closed();
        for path in faulty::paths(&*env).iter().filter(|p| p.starts_with("pages/0")) {
            env.remove(path).expect("removes");
        }
        open_and_read(env)
    }),
    (Code::FileOpen, &["file=", "os="], || {
        let mode = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
        let env = MemEnv::new();
        env.open("x", mode).expect("creates");
        failed(env.open("x", mode).map(|_| ()))
    }),
    // No user may create files there, not even the superuser.
    (Code::NoPermission, &["file=/sys/evenkeel", "os="], || {
        failed(Database::open("/sys/evenkeel"))
    }),
    (Code::DirectoryUnsafe, &["file=/", "mode=777"], || {
        let dir = tempfile::tempdir().expect("a directory");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).expect("changes");
        failed(Database::open(dir.path()))
    }),
    (Code::ReadFailed, &["file=pages/"], || {
        let (env, faults) = FaultyEnv::new();
        fill(&Database::open_with("dir", small(env.clone())).expect("opens"));
        faults.fail(Some((Op::Read, "pages/", Code::ReadFailed)));
        open_and_read(env)
    }),
    // Files that are cut while the database is open.
    (Code::ReadShort, &["/runs/0", "offset=4096"], || {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || {
            let env = Arc::new(RealEnv::new(dir.path()));
            Database::open_with(dir.path(), small(env)).expect("opens")
        };
        let db = open();
        fill(&db);
        db.close().expect("closes");
        let db = open();
        for run in std::fs::read_dir(dir.path().join("runs")).expect("there").flatten() {
            let file = std::fs::OpenOptions::new().write(true).open(run.path()).expect("opens");
            file.set_len(4096).expect("cuts");
        }
        read_all(&db)
    }),
    (Code::WriteFailed, &["file=wal/"], || stopped(Op::Write, Code::WriteFailed).0),
    (Code::SyncFailed, &["file=wal/"], || stopped(Op::Sync, Code::SyncFailed).0),
    (Code::DiskFull, &["file=/dev/full"], || {
        let file = real("/dev").open("full", OpenMode { write: true, ..OpenMode::READ });
        failed(file.expect("opens").write_at(&[0; 4096], 0))
    }),
    (Code::SystemLimit, &["file=pages/"], || {
        let (env, faults) = FaultyEnv::new();
        fill(&Database::open_with("dir", small(env.clone())).expect("opens"));
        faults.fail(Some((Op::Open, "pages/", Code::SystemLimit)));
        open_and_read(env)
    }),
    (Code::DirectoryBusy, &["file=evenkeel.lock"], || {
        let env = Arc::new(MemEnv::new());
        let _open = Database::open_with("dir", on(env.clone())).expect("opens");
        failed(Database::open_with("dir", on(env)))
    }),
    (Code::ThreadSpawn, &["thread=ek-"], || {
        let (env, faults) = FaultyEnv::new();
        faults.no_threads.store(true, SeqCst);
        failed(Database::open_with("dir", on(env)))
    }),
    (Code::BadEncoding, &["what=checkpoint"], || {
        failed(evenkeel_format::superblock::decode_sections(&[1, 200]).map(|_| ()))
    }),
    (Code::NewerFormat, &["part=superblock", "found=9", "known=2"], || versions(12)),
    (Code::NotADatabase, &["file=evenkeel.super"], || {
        spoiled("evenkeel.super", |bytes, _| bytes.fill(7))
    }),
    (Code::LogDamaged, &["lsn="], || {
        let copy = killed();
        let path = "wal/00000001.wal";
        let mut bytes = faulty::content(&*copy, path);
        bytes[wal::SEGMENT_HEADER + 200 * wal::BLOCK + 77] ^= 4;
        faulty::replace(&*copy, path, &bytes);
        open_and_read(copy)
    }),
    (Code::LogMissing, &["file="], || {
        let copy = killed();
        copy.remove("wal/00000001.wal").expect("removes");
        open_and_read(copy)
    }),
    (Code::CheckpointMissing, &["file=evenkeel.super", "lsn="], || {
        let env = closed();
        for path in faulty::paths(&*env).iter().filter(|p| p.starts_with("wal/")) {
            env.remove(path).expect("removes");
        }
        open_and_read(env)
    }),
    (Code::OtherDatabase, &["file=wal/", "offset=0", "found=", "database="], || {
        let (env, other) = (closed(), closed());
        let stranger = faulty::content(&*other, "evenkeel.super");
        faulty::replace(&*env, "evenkeel.super", &stranger);
        open_and_read(env)
    }),
    (Code::LogVersion, &["9"], || {
        spoiled("wal/", |bytes, db| {
            let header = &mut bytes[..wal::SEGMENT_HEADER];
            header[8] = 9;
            header[12..16].fill(0);
            let crc = db.crc32c(header);
            header[12..16].copy_from_slice(&crc.to_le_bytes());
        })
    }),
    (Code::LogTooLarge, &["bytes=100000000"], || {
        failed(small_log().reserve(100_000_000, Share::User).map(|_| ()))
    }),
    (Code::LogFull, &["bytes="], || {
        let log = small_log();
        loop {
            let mut space = match log.reserve(30_000, Share::Checkpoint) {
                Ok(space) => space,
                Err(error) => return error,
            };
            let kind = evenkeel_format::record::RecordKind::Checkpoint;
            log.append(&mut space, kind, &[&[0; 30_000]]);
        }
    }),
    (Code::PageChecksum, &["page=", "file="], || leaves(|image, _, _| image[2000] ^= 1)),
    (Code::PageIdentity, &["page=", "found="], || {
        leaves(|image, i, db| {
            image[8..16].copy_from_slice(&(i as u64 + 7).to_le_bytes());
            page::seal(image, db);
        })
    }),
    (Code::PageUnwritten, &["page="], || leaves(|image, _, _| image.fill(0))),
    (Code::PageVersion, &["page=", "version=9"], || {
        leaves(|image, _, db| {
            image[4] = 9;
            page::seal(image, db);
        })
    }),
    (Code::PageBeyond, &["page="], || {
        let rt = Runtime::new(Arc::new(MemEnv::new()));
        let pool_bytes = 1 << 20;
        let options = evenkeel_pages::PagesOptions {
            page_size: 4096,
            pool_bytes,
            doublewrite: true,
            log_bytes: 1 << 20,
        };
        let pages =
            evenkeel_pages::Pages::create(Scheduler::new(rt.clone()), options).expect("pages");
        pages.attach_log(Log::create(rt, log_options(), Lsn(0)).expect("a log")).expect("attached");
        failed(pages.read(PageNo(u64::MAX), evenkeel_pages::Access::Normal).map(|_| ()))
    }),
    (Code::BadPageSize, &["page_size=5000"], || {
        failed(evenkeel_format::space::Geometry::new(5000).map(|_| ()))
    }),
    (Code::PoolTooSmall, &["pool_bytes=4096", "at_least="], || {
        let geometry = Geometry { pool_bytes: Some(4096), ..Geometry::default() };
        failed(Database::open_with("dir", Options::in_memory().geometry(geometry)))
    }),
    (Code::RunDamaged, &["file=runs/"], || {
        spoiled("runs/", |bytes, _| bytes.iter_mut().skip(100).step_by(500).for_each(|b| *b ^= 1))
    }),
    (Code::RunVersionUnknown, &["file=runs/", "version=9"], run_version),
    (Code::DeadlockVictim, &[], deadlock),
    (Code::LockWaitTimeout, &[], || locked(LockWait::Wait)),
    (Code::LockNotAvailable, &["held_by="], || locked(LockWait::NoWait)),
    (Code::StatementCancelled, &[], cancelled),
    (Code::XidInUse, &["xid="], || prepared(b"one", b"one")),
    (Code::XidTooLong, &["limit="], || prepared(b"one", &[b'x'; 1025])),
    (Code::XidUnknown, &["xid="], || failed(memory().commit_prepared(b"nobody"))),
    (Code::TableMissing, &["nobody"], || failed(memory().drop_table("nobody"))),
    (Code::TableExists, &["table=t"], || failed(memory().create_table("t", &spec()))),
    (Code::ColumnMissing, &["column=nobody"], || failed(memory().drop_column("t", "nobody"))),
    (Code::ColumnExists, &["column=a"], || {
        failed(memory().add_column("t", &column("a").nullable()))
    }),
    (Code::ColumnInUse, &["column=a"], || failed(memory().drop_column("t", "a"))),
    (Code::IndexMissing, &["table=t", "index=nobody"], || {
        failed(memory().drop_index("t", "nobody"))
    }),
    (Code::IndexExists, &["index=by_a"], || {
        failed(memory().add_indexes("t", &[IndexSpec::new("by_a", &["id"])]))
    }),
    (Code::NameInvalid, &["bytes=1025", "limit=1024"], || {
        failed(memory().create_table(&"x".repeat(limits::TABLE_NAME_BYTES_MAX + 1), &spec()))
    }),
    (Code::DefinitionInvalid, &["a table needs a column"], || create(TableSpec::new())),
    (Code::TooManyColumns, &["count=1018", "limit=1017"], || create(wide(1018))),
    (Code::TooManyIndexes, &["count=65", "limit=64"], || {
        create((0..65).fold(spec(), |s, i| s.index(IndexSpec::new(&format!("i{i}"), &["a"]))))
    }),
    (Code::TooManyKeyParts, &["count=33", "limit=32"], || {
        let parts: Vec<String> = (1..34).map(|i| format!("c{i}")).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        create(wide(40).index(IndexSpec::new("long", &parts)))
    }),
    (Code::CollationMissing, &["collation=7"], || {
        let (db, spec) = (memory(), collated());
        failed(db.create_table("c", &spec))
    }),
    (Code::CollationChanged, &["collation=7"], collation_changed),
    (Code::EntryTooLong, &["limit="], || long_value(&["name"], 70_000)),
    (Code::RowTooLong, &["bytes="], row_too_long),
    (Code::WrongValueCount, &["2", "3"], || statement(|t| t.insert(&[Int(1), Int(2)]))),
    (Code::ValueType, &["name"], || statement(|t| t.insert(&[Int(9), Null, Int(3)]))),
    (Code::ValueRange, &["name", "40"], || {
        statement(|t| t.insert(&[Int(9), Null, Text(&"x".repeat(41))]))
    }),
    (Code::NullNotAllowed, &["name"], || statement(|t| t.insert(&[Int(9), Null, Null]))),
    (Code::DuplicateKey, &["by_a"], || statement(|t| t.insert(&[Int(9), Int(1), Text("")]))),
    (Code::DuplicateInBuild, &["index=u"], || {
        let db = memory();
        write(&db, |txn| txn.table("t")?.insert(&[Int(2), Null, Text("one")]).map(|_| ()));
        failed(db.add_indexes("t", &[IndexSpec::new("u", &["name"]).unique()]))
    }),
    (Code::RowChanged, &[], || {
        let db = memory();
        let txn = begin(&db);
        txn.take_snapshot().expect("taken");
        write(&db, |txn| txn.table("t")?.update(&[Int(1)], &[(1, Null)]).map(|_| ()));
        failed(txn.table("t").expect("there").delete(&[Int(1)]))
    }),
    (Code::AutoIncrementExhausted, &["table=small", "column=id"], || {
        let db = memory();
        let id = ColumnSpec::new("id", ColumnType::UInt8).auto_increment();
        let spec = TableSpec::new().column(id).primary_key(&["id"]);
        db.create_table("small", &spec).expect("creates");
        let txn = begin(&db);
        let table = txn.table("small").expect("there");
        table.insert(&[Int(255)]).expect("the last one");
        failed(table.insert(&[Null]))
    }),
    (Code::ForeignKeyInvalid, &["constraint=k", "of type text"], || family("name").1),
    (Code::ForeignKeyNeeds, &["table=t", "constraint=k", "child=child"], || {
        failed(family("id").0.drop_table("t"))
    }),
    (Code::ParentRowMissing, &["table=child", "constraint=k", "parent=t", "key=Int(8)"], || {
        failed(begin(&family("id").0).table("child").expect("there").insert(&[Int(1), Int(8)]))
    }),
    (Code::RowReferenced, &["table=t", "constraint=k", "child=child", "key=Int(1)"], || {
        let db = family("id").0;
        let txn = begin(&db);
        txn.table("child").expect("there").insert(&[Int(1), Int(1)]).expect("has a parent");
        failed(txn.table("t").expect("there").delete(&[Int(1)]))
    }),
    (Code::CascadeTooDeep, &["table=tree", "constraint=up", "limit=15"], || {
        let db = memory();
        let key = ForeignKeySpec::new("up", &["up"], "tree", &["id"]);
        let spec = TableSpec::new()
            .column(column("id"))
            .column(column("up"))
            .primary_key(&["id"])
            .index(IndexSpec::new("by_up", &["up"]))
            .foreign_key(key.on_delete(ReferenceAction::Cascade));
        db.create_table("tree", &spec).expect("creates");
        let txn = begin(&db);
        let tree = txn.table("tree").expect("there");
        (0..=limits::CASCADE_DEPTH_MAX as i64 + 1).for_each(|id| {
            tree.insert(&[Int(id), Int((id - 1).max(0))]).expect("inserts");
        });
        failed(tree.delete(&[Int(0)]))
    }),
    (Code::CascadeDuplicate, &["table=child", "constraint=k", "index=once"], || {
        let db = memory();
        let key = ForeignKeySpec::new("k", &["parent"], "t", &["id"]);
        let spec = TableSpec::new()
            .column(column("id"))
            .column(column("parent"))
            .primary_key(&["id"])
            .index(IndexSpec::new("once", &["parent"]).unique())
            .foreign_key(key.on_update(ReferenceAction::Cascade));
        db.create_table("child", &spec).expect("creates");
        let mut txn = begin(&db);
        txn.table("child").expect("there").insert(&[Int(1), Int(1)]).expect("has a parent");
        txn.set_foreign_key_checks(false);
        txn.table("child").expect("there").insert(&[Int(2), Int(5)]).expect("unchecked");
        txn.set_foreign_key_checks(true);
        failed(txn.table("t").expect("there").update(&[Int(1)], &[("id", Int(5))]))
    }),
    (Code::ForeignKeyMissing, &["table=t", "constraint=nobody"], || {
        failed(memory().drop_foreign_key("t", "nobody"))
    }),
    (Code::ChunkingInvalid, &["table=c", "column=at", "index=primary"], || {
        let db = memory();
        failed(db.create_table("c", &chunked().primary_key(&["id"])))
    }),
    (Code::ChunkedTable, &["table=c"], || {
        let db = with_chunks();
        failed(db.add_column("c", &column("more").nullable()))
    }),
    (Code::TooManyChunks, &["table=c", "count=1001", "limit=1000"], || {
        let db = with_chunks();
        let rows: Vec<_> = (0..1001).map(|n| [Int(n), Int(60 * n)]).collect();
        let txn = begin(&db);
        let table = txn.table("c").expect("there");
        failed(table.insert_many(rows.iter().map(|row| &row[..])))
    }),
    (Code::RowsNotSorted, &["table=t"], || {
        let row = |id| vec![Value::Int(id), Value::Null, Value::Text("x".into())];
        statement(|t| t.bulk_load([row(7), row(9), row(8)]))
    }),
    (Code::TableBusy, &["table=t"], || {
        let options =
            Options { lock_wait_timeout: Duration::from_millis(20), ..Options::in_memory() };
        let db = Database::open_with("dir", options).expect("opens");
        db.create_table("t", &spec()).expect("creates");
        let txn = begin(&db);
        txn.table("t").expect("there").insert(&[Int(1), Null, Text("")]).expect("inserts");
        failed(db.drop_table("t"))
    }),
    (Code::TransactionEnded, &[], || {
        let db = memory();
        let txn = begin(&db);
        let canceller = txn.canceller();
        canceller.cancel();
        drop(canceller);
        ended(txn.take_snapshot().map(|_| ()), deadlocked)
    }),
    (Code::SavepointMissing, &["nobody"], || failed(begin(&memory()).rollback_to("nobody"))),
    (Code::NestedCall, &[], || {
        let db = memory();
        let txn = begin(&db);
        let mut nested = None;
        let rows = std::iter::from_fn(|| {
            nested = txn.savepoint("within").err();
            None::<[Value; 3]>
        });
        txn.table("t").and_then(|t| t.bulk_load(rows)).expect("loads nothing");
        nested.expect("refused")
    }),
    (Code::ValueConversion, &["column=name", "wanted=i64"], || {
        let db = memory();
        write(&db, |txn| txn.table("t")?.insert((8, None::<i64>, "Ada")).map(|_| ()));
        let row = begin(&db).table("t").and_then(|t| t.get(8)).expect("reads").expect("is there");
        failed(row.get::<i64>("name").map(|_| ()))
    }),
    (Code::BuildCancelled, &[], || {
        let progress = BuildProgress::default();
        progress.cancel();
        let specs = [IndexSpec::new("later", &["name"])];
        failed(memory().add_indexes_with("t", &specs, &progress))
    }),
    (Code::DirectoryNotEmpty, &["directory=dir", "found=letter.txt"], || {
        let env = MemEnv::new();
        faulty::replace(&env, "letter.txt", b"dear");
        failed(Database::open_with("dir", on(Arc::new(env))))
    }),
    (Code::OptionOutOfRange, &["option=memory_size", "value=1,", "min=16777216"], || {
        failed(Database::open_with("dir", Options { memory_size: 1, ..Options::in_memory() }))
    }),
    (Code::SettingUnknown, &["setting=colour"], || failed(memory().set("colour", 1))),
    (Code::SettingFixed, &["setting=page_size", "chosen=create"], || {
        failed(memory().set("page_size", 8192))
    }),
    (Code::PageSizeMismatch, &["asked=8192", "database=4096"], || {
        let options = Options { page_size: Some(8192), ..on(closed()) };
        failed(Database::open_with("dir", options))
    }),
    (Code::OpenedReadOnly, &["what=database"], || {
        let db = Database::open_with("dir", Options { read_only: true, ..on(closed()) });
        failed(db.expect("opens").begin(Isolation::RepeatableRead, Access::ReadWrite).map(|_| ()))
    }),
    (Code::DatabaseClosed, &[], || {
        let db = memory();
        db.clone().close().expect("closes");
        failed(db.begin(Isolation::RepeatableRead, Access::ReadOnly).map(|_| ()))
    }),
];

/// The error of the first result, or that of a second attempt.
fn ended(first: evenkeel::Result<()>, second: fn() -> Error) -> Error {
    first.err().unwrap_or_else(second)
}

/// The error of the next statement of a deadlock's victim.
fn deadlocked() -> Error {
    let db = memory();
    write(&db, |txn| txn.table("t")?.insert(&[Int(2), Int(2), Text("two")]).map(|_| ()));
    let (mut a, mut b) = (begin(&db), begin(&db));
    for txn in [&mut a, &mut b] {
        txn.set_lock_wait(Duration::from_secs(50));
    }
    let update = |txn: &mut Txn, id| txn.table("t")?.update(&[Int(id)], &[(1, Null)]).map(|_| ());
    update(&mut a, 1).expect("free");
    update(&mut b, 2).expect("free");
    let go_on = move |txn: &mut Txn, id| update(txn, id).err().map(|_| failed(update(txn, id)));
    let other = std::thread::spawn(move || (go_on(&mut b, 1), drop(b)).0);
    let mine = go_on(&mut a, 2);
    drop(a);
    mine.or(other.join().expect("no panic")).expect("one of them is the victim")
}

/// The error of inserting a value of this many bytes into a table with an index on it.
fn long_value(parts: &[&str], bytes: usize) -> Error {
    let db = memory();
    let name = ColumnSpec::new("name", ColumnType::Text { max: 1 << 20 });
    let spec = TableSpec::new().column(column("id")).column(name).primary_key(&["id"]);
    db.create_table("long", &spec.index(IndexSpec::new("n", parts))).expect("creates");
    let text = "x".repeat(bytes);
    failed(begin(&db).table("long").expect("there").insert(&[Int(1), Text(&text)]))
}

fn row_too_long() -> Error {
    let db = memory();
    let fixed = |i: usize| ColumnSpec::new(&format!("f{i}"), ColumnType::FixedBytes { len: 255 });
    let spec = (0..100).fold(TableSpec::new().column(column("id")), |s, i| s.column(fixed(i)));
    if let Err(error) = db.create_table("wide", &spec.primary_key(&["id"])) {
        return error;
    }
    let bytes = [7u8; 255];
    let mut row = vec![Int(1)];
    row.extend((0..100).map(|_| evenkeel::ValueRef::Bytes(&bytes)));
    failed(begin(&db).table("wide").expect("there").insert(&row))
}

fn run_version() -> Error {
    spoiled("runs/", |bytes, db| {
        let at = bytes.len() - evenkeel_format::run::Trailer::LEN;
        let trailer = &mut bytes[at..];
        trailer[8] = 9;
        let crc = crc32c(db.crc32c(&trailer[..12]), &trailer[16..]);
        trailer[12..16].copy_from_slice(&crc.to_le_bytes());
    })
}
