//! Builds the binary of the other engines with those requested.

use evenkeel_bench::BenchError;
use std::path::{Path, PathBuf};
use std::process::Command;

const PEERS: [&str; 5] = ["rocksdb", "sqlite", "lmdb", "redb", "fjall"];

/// True for an engine of that binary.
pub fn is_peer(engine: &str) -> bool {
    PEERS.contains(&engine)
}

/// Builds the binary if one of its engines is requested, and returns its path.
///
/// # Errors
/// `Missing` if the build fails, with the packages to install.
pub fn build(engines: &[String]) -> Result<PathBuf, BenchError> {
    let wanted: Vec<&str> = PEERS.into_iter().filter(|p| is_in(engines, p)).collect();
    if wanted.is_empty() {
        return Ok(PathBuf::new());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"),
        |dir| PathBuf::from(dir).join("peers"),
    );
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--manifest-path"]).arg(root.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(&target).args(["--features", &wanted.join(",")]);
    if wanted.contains(&"rocksdb") {
        let library = library_dir().ok_or_else(|| {
            BenchError::Missing("librocksdb is missing: run `bash scripts/deps.sh compare`".into())
        })?;
        cargo.env("ROCKSDB_LIB_DIR", library);
    }
    let built = cargo.status().map_err(|e| BenchError::Missing(format!("cargo: {e}")))?;
    if !built.success() {
        return Err(BenchError::Missing(
            "the peers do not build: run `bash scripts/deps.sh compare`, then again".into(),
        ));
    }
    Ok(target.join("release/evenkeel-bench-peers"))
}

fn is_in(engines: &[String], peer: &str) -> bool {
    engines.iter().any(|engine| engine == peer)
}

fn library_dir() -> Option<PathBuf> {
    let dirs = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"];
    dirs.into_iter().map(PathBuf::from).find(|dir| dir.join("librocksdb.so").exists())
}
