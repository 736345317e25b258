//! The in-memory environment.
use crate::{Env, File, MemEnv, OpenMode};
use evenkeel_base::Code;

#[test]
fn files_live_in_memory() {
    let env = MemEnv::new();
    env.create_dir("wal").expect("create");
    assert_eq!(env.open("wal/1", OpenMode::READ).err().map(|e| e.code()), Some(Code::FileMissing));
    let file = env.open("wal/1", OpenMode::READ_WRITE.direct()).expect("open");
    file.write_at(b"hello", 10).expect("write");
    file.sync().expect("sync");
    let mut buf = [9; 15];
    file.read_at(&mut buf, 0).expect("read");
    assert_eq!(&buf, b"\0\0\0\0\0\0\0\0\0\0hello");
    assert_eq!(file.read_at(&mut buf, 1).err().map(|e| e.code()), Some(Code::ReadShort));
    env.open("wal-x", OpenMode::READ_WRITE).expect("open");
    assert_eq!(env.list("wal").expect("list"), ["1"]);
    assert_eq!(env.list("").expect("list"), ["wal", "wal-x"]);
    env.rename("wal/1", "wal/2").expect("rename");
    let exclusive = OpenMode { exclusive: true, ..OpenMode::READ_WRITE };
    assert_eq!(env.open("wal/2", exclusive).err().map(|e| e.code()), Some(Code::FileOpen));
    assert_eq!(env.used_bytes(), 4096);
    env.remove("wal/2").expect("remove");
    assert_eq!(env.used_bytes(), 0);
    file.read_at(&mut buf, 0).expect("an open file outlives its name");
}

#[test]
fn a_fork_shares_nothing_that_changes() {
    let env = MemEnv::new();
    let mode = OpenMode { lock: true, ..OpenMode::READ_WRITE };
    let file = env.open("a", mode).expect("open");
    file.write_at(&[1; 8192], 0).expect("write");
    let fork = env.fork();
    let other = fork.open("a", mode).expect("not locked there");
    other.write_at(&[2], 5000).expect("write");
    file.write_at(&[3], 100).expect("write");
    fork.remove("b").expect("there is none");
    let byte = |file: &dyn File, at| {
        let mut one = [0];
        file.read_at(&mut one, at).expect("read");
        one[0]
    };
    assert_eq!((byte(&*file, 100), byte(&*file, 5000)), (3, 1));
    assert_eq!((byte(&*other, 100), byte(&*other, 5000)), (1, 2));
}

#[test]
fn a_lock_is_held_while_open_and_readers_cannot_write() {
    let env = MemEnv::new();
    let mode = OpenMode { lock: true, ..OpenMode::READ_WRITE };
    let held = env.open("lock", mode).expect("open");
    assert_eq!(env.open("lock", mode).err().map(|e| e.code()), Some(Code::DirectoryBusy));
    drop(held);
    env.open("lock", mode).expect("free again");
    let reader = env.open("lock", OpenMode::READ).expect("open");
    assert_eq!(reader.write_at(b"x", 0).err().map(|e| e.code()), Some(Code::WriteFailed));
}
