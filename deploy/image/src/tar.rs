//! The tar format (POSIX ustar), as far as images need it.

const BLOCK: usize = 512;

/// Files of root, with one time for all.
pub(crate) struct Tar {
    bytes: Vec<u8>,
    time: u64,
    folders: Vec<String>,
}

impl Tar {
    pub(crate) fn new(time: u64) -> Self {
        Self {
            bytes: Vec::new(),
            time,
            folders: Vec::new(),
        }
    }

    /// Adds a file, and the folders on the way to it.
    ///
    /// # Panics
    /// When the path has more than 100 bytes.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        let folders: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
        for folder in folders.into_iter().map(|at| format!("{}/", &path[..at])) {
            if !self.folders.contains(&folder) {
                self.header(&folder, b'5', 0o755, 0);
                self.folders.push(folder);
            }
        }
        self.header(path, b'0', mode, content.len());
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }

    fn header(&mut self, path: &str, kind: u8, mode: u32, size: usize) {
        assert!(path.len() <= 100, "{path} is too long for this tar");
        let mut header = [0; BLOCK];
        header[..path.len()].copy_from_slice(path.as_bytes());
        let mut put =
            |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{size:011o}"));
        put(136, &format!("{:011o}", self.time));
        // The sum is made with spaces in its own place.
        put(148, "        ");
        put(257, "ustar\0");
        put(263, "00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
    }

    fn pad(&mut self) {
        let whole = self.bytes.len().next_multiple_of(BLOCK);
        self.bytes.resize(whole, 0);
    }
}
