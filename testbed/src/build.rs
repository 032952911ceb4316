use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    Error, Kind, Missing,
    availability::program,
    binaries::Module,
    error::tail,
    process::{guarded, spawn},
};

/// Is told, in one short line, what the build is doing.
pub type Progress<'a> = dyn FnMut(&str) + 'a;

pub(crate) fn build(
    kind: Kind,
    target: &Path,
    progress: &mut Progress<'_>,
) -> Result<PathBuf, Error> {
    if target.is_file() {
        return Ok(target.to_owned());
    }
    let folder = target.parent().expect("a binary is in a folder");
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    let _only_one = lock(folder, progress)?;
    if !target.is_file() {
        compile(kind, folder, target, progress)?;
    }
    Ok(target.to_owned())
}

fn lock(folder: &Path, progress: &mut Progress<'_>) -> Result<File, Error> {
    let path = folder.join("build.lock");
    let file = File::create(&path).map_err(Error::io("create", &path))?;
    if file.try_lock().is_err() {
        progress("another process is building; waiting for it");
        file.lock().map_err(Error::io("lock", &path))?;
    }
    Ok(file)
}

fn compile(
    kind: Kind,
    folder: &Path,
    target: &Path,
    progress: &mut Progress<'_>,
) -> Result<(), Error> {
    let go = Go {
        program: program("go").ok_or(Missing::Go(kind.name()))?,
        source: folder.join("source"),
        log: folder.join(format!("{}.build.log", kind.name())),
        kind,
    };
    let began = Instant::now();
    write_sources(kind.module(), &go.source)?;

    progress(&format!("{}: fetching modules", kind.name()));
    let list = folder.join(format!("{}.packages", kind.name()));
    let packages = File::create(&list).map_err(Error::io("create", &list))?;
    go.run(&["list", "-deps"], packages.into(), &mut |line| {
        progress(&format!("{}: {line}", kind.name()));
    })?;
    let packages = fs::read_to_string(&list)
        .map_err(Error::io("read", &list))?
        .lines()
        .count();

    let unfinished = folder.join(format!("{}.unfinished", kind.name()));
    let (ldflags, output) = (
        format!("-ldflags={}", kind.ldflags()),
        format!("-o={}", unfinished.display()),
    );
    let flags = [
        "build",
        "-v",
        "-trimpath",
        "-buildvcs=false",
        &ldflags,
        &output,
    ];
    let mut compiled = 0;
    go.run(&flags, Stdio::null(), &mut |line| {
        compiled += 1;
        progress(&format!(
            "{}: compiled {compiled} of {packages} packages, now {line}",
            kind.name()
        ));
    })?;
    fs::rename(&unfinished, target).map_err(Error::io("rename", &unfinished))?;
    progress(&format!(
        "{}: built in {:.0?}",
        kind.name(),
        began.elapsed()
    ));
    Ok(())
}

fn write_sources(module: &Module, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("create", folder))?;
    for (name, text) in module.files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

struct Go {
    program: PathBuf,
    source: PathBuf,
    log: PathBuf,
    kind: Kind,
}

impl Go {
    /// Runs `go` on the program's package and hands on each line that it prints on standard error.
    fn run(
        &self,
        arguments: &[&str],
        stdout: Stdio,
        each_line: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let failed = |source| Error::Spawn {
            program: "go".to_owned(),
            source,
        };
        let mut command = guarded(&self.program);
        command
            .args(arguments)
            .arg(self.kind.package())
            .current_dir(&self.source)
            .env("CGO_ENABLED", "0");
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped());
        let mut child = spawn(command).map_err(failed)?;
        let mut output = String::new();
        let stderr = child.stderr.take().expect("stderr is piped");
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            each_line(&line);
            output.push_str(&line);
            output.push('\n');
        }
        let status = child.wait().map_err(failed)?;
        fs::write(&self.log, &output).map_err(Error::io("write", &self.log))?;
        if status.success() {
            return Ok(());
        }
        if output.contains("no space left on device") {
            return Err(Error::DiskFull {
                path: self.log.clone(),
            });
        }
        let (binary, log) = (self.kind.name(), self.log.clone());
        Err(Error::Build {
            binary,
            status,
            log,
            tail: tail(&output),
        })
    }
}

/// Shows progress on standard error, past the test harness's capture: on a terminal on one line, elsewhere now and then.
pub fn progress_on_stderr() -> impl FnMut(&str) {
    const EVERY: Duration = Duration::from_secs(10);
    let terminal = io::stderr().is_terminal();
    let mut last: Option<(Instant, String)> = None;
    move |line| {
        let mut stderr = io::stderr().lock();
        if terminal {
            let width = line.len().min(110);
            let end = if line.contains("built in") { "\n" } else { "" };
            let _ = write!(
                stderr,
                "\r\x1b[K{}{end}",
                &line[..line.floor_char_boundary(width)]
            );
            let _ = stderr.flush();
            return;
        }
        let step = |text: &str| text.split(" compiled ").next().map(str::to_owned);
        let due = last
            .as_ref()
            .is_none_or(|(at, text)| at.elapsed() >= EVERY || step(text) != step(line));
        if due {
            let _ = writeln!(stderr, "testbed: {line}");
            last = Some((Instant::now(), line.to_owned()));
        }
    }
}
