//! The fuzz target of the manifests of backups. `fuzz` lists it.

use evenkeel_base::crc32c;
use evenkeel_format::backup::BackupManifest;

/// The manifest of a backup. What decodes is written again as it was, and names no path outside.
pub fn decode(data: &[u8]) {
    let _ = BackupManifest::decode(data);
    // The checksum is the last line.
    let end = data.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let begin = data[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let body = &data[..begin];
    let sealed = [body, format!("crc32c {:08x}\n", crc32c(0, body)).as_bytes()].concat();
    if let Ok(manifest) = BackupManifest::decode(&sealed) {
        assert_eq!(manifest.encode().as_bytes(), sealed);
        let is_inside = |path: &str| !path.starts_with('/') && !path.split('/').any(|p| p == "..");
        assert!(manifest.files.iter().all(|file| is_inside(&file.path)));
    }
}

/// A manifest with files of every kind; the target writes its checksum.
pub fn corpus() -> Vec<Vec<u8>> {
    let text = "evenkeel backup 1\ndatabase 00000000000000ab\nversions 1 1 2 1 1\n\
                page_size 4096\nredo 480\ncheckpoint 900\nend 1234\n\
                file 4096 superblock 00000007\nfile 1048577 pages/000000.pg 0000000a -\n\
                file 0 runs/00000001.run\ncrc32c 00000000\n";
    let based = text.replace("backup 1", "backup 3").replace(" -\n", " =\n");
    let based = based.replace("file 4096", "note a b\nbase 0000000a 240 720\nfile 4096");
    vec![text.into(), based.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_decodes_once_its_checksum_is_right() {
        for text in corpus() {
            let body = &text[..text.len() - "crc32c 00000000\n".len()];
            let sealed = [body, format!("crc32c {:08x}\n", crc32c(0, body)).as_bytes()].concat();
            assert_eq!(BackupManifest::decode(&sealed).expect("decodes").files.len(), 3);
            decode(&text);
        }
    }
}
