//! The control socket, and `soloist prestop` without Kubernetes: in a network namespace of its own, whose connections are counted.

use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};

use crate::harness::{Group, LIMIT, SOLOIST, lease, wait_for};
use crate::http::{LISTEN, address, get};
use crate::listener::wait_code;
use crate::namespaces;
use crate::skipped::skipped;

/// All soloists of this machine that have the same mount namespace find each other.
pub(crate) fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("prestop-{process}-{next}")
}

fn control_socket(group: &Group) -> PathBuf {
    wait_for("a control socket", LIMIT, || {
        let entries = fs::read_dir(group.path("")).unwrap().flatten();
        let is_control = |path: &PathBuf| path.to_string_lossy().contains("/soloist-control-");
        let folder = entries.map(|entry| entry.path()).find(is_control)?;
        Some(folder.join("socket")).filter(|socket| socket.exists())
    })
}

pub(crate) fn ask(group: &Group, request: &Value) -> Value {
    let mut stream = UnixStream::connect(control_socket(group)).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    writeln!(stream, "{request}").unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

pub(crate) fn request(name: &str) -> Value {
    json!({ "version": 1, "request": name })
}

#[test]
fn the_control_socket_tells_the_state_and_goes_with_its_replica() {
    let mut group = Group::new();
    let name = unique_name();
    let (replica, start) = group.lead(&name, &[], &[]);
    let socket = control_socket(&group);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    assert_eq!(mode(&socket.parent().unwrap().into()), 0o700);
    let status = ask(&group, &request("status"));
    assert_eq!(status["identity"], name.as_str(), "{status}");
    assert_eq!(status["token"], start.token.to_string(), "{status}");
    assert_eq!(status["ending"], false, "{status}");
    let nonsense = ask(&group, &json!({ "version": 2, "request": "status" }));
    assert!(nonsense["error"].is_string(), "{nonsense}");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert!(!socket.exists() && !socket.parent().unwrap().exists());
}

#[test]
fn clients_that_say_nothing_neither_cost_the_lease_nor_hold_up_the_end() {
    let mut group = Group::new();
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    let socket = control_socket(&group);
    let silent: Vec<_> = (0..30)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    assert_eq!(ask(&group, &request("status"))["identity"], name.as_str());
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert_eq!(group.replica(replica).log().matches("elected").count(), 1);
    drop(silent);
}

#[test]
fn another_user_is_refused_even_where_it_can_open_the_socket() {
    if !rustix::process::geteuid().is_root() {
        return skipped("only root can become another user");
    }
    let mut group = Group::new();
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    let socket = control_socket(&group);
    for (path, mode) in [(socket.parent().unwrap().into(), 0o711), (socket, 0o666)] {
        fs::set_permissions::<PathBuf>(path, Permissions::from_mode(mode)).unwrap();
    }
    // Where it can be run by anybody.
    let program = group.path("soloist");
    fs::copy(SOLOIST, &program).unwrap();
    let mut prestop = Command::new(program);
    prestop
        .args(["prestop", "--max", "1s", "--identity", &name])
        .uid(65534);
    let output = prestop.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("no soloist of the name"),
        "{}",
        stderr(&output)
    );
    let log = group.replica(replica).wait_log("from another user");
    assert!(log.contains("uid=65534"), "{log}");
    assert!(!group.replica(replica).log().contains("preStop"));
}

#[test]
fn what_the_hook_took_is_taken_off_the_stop_timeout() {
    let mut group = Group::with(&["--grace-period", "8s"]);
    let (replica, _) = group.lead(&unique_name(), &[], &["deaf"]);
    let mut end = request("prestop-end");
    end["took_ms"] = 5000.into();
    end["text"] = "quiet".into();
    assert_eq!(ask(&group, &end)["ok"], true);
    assert_eq!(ask(&group, &request("status"))["ending"], true);
    let asked = Instant::now();
    group.replica(replica).signal(Signal::TERM);
    // 3 s are left of 8, and a quarter of that is the margin; it would have been 6 s.
    assert_eq!(group.replica(replica).exit_code(), 1);
    let took = asked.elapsed();
    assert!(
        took >= Duration::from_secs(2) && took < Duration::from_millis(5500),
        "{took:?}"
    );
    let log = group.replica(replica).log();
    assert!(log.contains("preStop: quiet took=5s"), "{log}");
}

#[test]
fn readiness_ends_when_the_hook_begins_and_comes_back_if_no_end_follows() {
    let mut group = Group::everywhere(&[LISTEN, "--grace-period", "4s"]);
    let (replica, _) = group.lead(&unique_name(), &[], &[]);
    let at = address(group.replica(replica));
    wait_code(at, "/readyz", 200);
    let answer = ask(&group, &request("prestop-begin"));
    assert_eq!(answer["ok"], true, "{answer}");
    wait_code(at, "/readyz", 503);
    assert_eq!(get(at, "/readyz").body, "the Pod's end is near\n");
    assert_eq!(get(at, "/livez").code, 200);
    wait_code(at, "/readyz", 200);
}

#[test]
fn a_hook_without_a_soloist_does_its_waiting_and_does_not_fail() {
    if !namespaces::are_there(&OWN_NETWORK) {
        return;
    }
    let mut command = Command::new("unshare");
    command
        .args(OWN_NETWORK)
        .args([SOLOIST, "prestop", "--max", "5s"]);
    let output = clean(&mut command).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert!(said.contains("no soloist runs here"), "{said}");
    assert!(
        said.contains("not in a Pod; nothing listens here"),
        "{said}"
    );
    let wrong = Command::new(SOLOIST)
        .args(["prestop", "--max", "soon"])
        .output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
}

#[test]
fn a_hook_beside_several_soloists_has_to_know_its_own() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    group.follow("r1", &[], &[]);
    let mut command = Command::new(SOLOIST);
    command.args(["prestop", "--max", "1s"]);
    let output = clean(&mut command).output().unwrap();
    let said = stderr(&output);
    assert!(
        said.contains("several soloists run here: say which with --identity"),
        "{said}"
    );
}

const OWN_NETWORK: [&str; 3] = ["--user", "--map-root-user", "--net"];
const ADDRESS: &str = "10.77.0.1";
const ADDRESS_V6: &str = "fd77::1";

/// A replica in a network namespace of its own, from where no store can be reached, with an address there that is not loopback's.
fn in_own_network(group: &mut Group, name: &str) -> usize {
    let setup = format!(
        "ip link set lo up && ip address add {ADDRESS}/32 dev lo && ip address add {ADDRESS_V6}/128 dev lo && exec \"$@\""
    );
    let command = group.child(name, &["--grace-period", "20s"], &[]);
    let by = ["unshare", "--net", "sh", "-ec", &setup, "sh"];
    let replica = group.spawn(name, &mut Group::under(&by, &command));
    group.wait_start(name);
    replica
}

fn network_of(group: &mut Group, replica: usize) -> PathBuf {
    let pid = group.replica(replica).pid();
    PathBuf::from(format!("/proc/{pid}/ns/net"))
}

/// What a thread does in that namespace, which it never leaves.
fn inside<T: Send + 'static>(
    network: PathBuf,
    work: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::spawn(move || {
        let network = File::open(network).unwrap();
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).unwrap();
        work()
    })
}

fn prestop(network: &std::path::Path, name: &str, flags: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", network.display()))
        .args([SOLOIST, "prestop", "--identity", name])
        .args(flags);
    clean(&mut command);
    command.stderr(Stdio::piped());
    command
}

/// As on no Pod.
fn clean(command: &mut Command) -> &mut Command {
    for variable in ["POD_NAME", "KUBERNETES_SERVICE_HOST", "SOLOIST_IDENTITY"] {
        command.env_remove(variable);
    }
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_hook_ends_when_no_new_connection_has_come_for_the_settle_time() {
    waits_for_silence(ADDRESS);
}

#[test]
fn connections_by_ipv6_count_as_well() {
    if !std::path::Path::new("/proc/net/tcp6").exists() {
        return skipped("a kernel without IPv6");
    }
    waits_for_silence(ADDRESS_V6);
}

fn waits_for_silence(at: &'static str) {
    if !rustix::process::geteuid().is_root() || !namespaces::are_there(&["--net"]) {
        return skipped("only root can enter another network namespace");
    }
    let mut group = Group::everywhere(&[]);
    let name = unique_name();
    let replica = in_own_network(&mut group, &name);
    let network = network_of(&mut group, replica);
    let listener = inside(network.clone(), move || TcpListener::bind((at, 0)).unwrap());
    let listener = listener.join().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let hook = prestop(&network, &name, &["--settle", "700ms", "--max", "20s"])
        .spawn()
        .unwrap();
    group.replica(replica).wait_log("the Pod's end is near");
    // Each is over before anybody can have seen it.
    let clients = inside(network, move || {
        for _ in 0..20 {
            drop(TcpStream::connect(address).unwrap());
            thread::sleep(Duration::from_millis(100));
        }
        Instant::now()
    });
    let hook = thread::spawn(move || (hook.wait_with_output().unwrap(), Instant::now()));
    let last = clients.join().unwrap();
    let (output, ended) = hook.join().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let quiet = ended.saturating_duration_since(last);
    assert!(
        quiet >= Duration::from_millis(500),
        "{quiet:?} after the last: {said}"
    );
    assert!(said.contains("not in a Pod; silence after"), "{said}");
    let log = group
        .replica(replica)
        .wait_log("preStop: not in a Pod; silence after");
    let counted = log
        .split("s, ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let counted: u32 = counted.unwrap().parse().unwrap();
    assert!((1..=20).contains(&counted), "{log}");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group
        .replica(replica)
        .wait_log("left of the grace period after preStop");
}

#[test]
fn the_hook_ends_at_its_maximum_whatever_comes() {
    if !rustix::process::geteuid().is_root() || !namespaces::are_there(&["--net"]) {
        return skipped("only root can enter another network namespace");
    }
    let mut group = Group::everywhere(&[]);
    let name = unique_name();
    let replica = in_own_network(&mut group, &name);
    let network = network_of(&mut group, replica);
    let listener = inside(network.clone(), || TcpListener::bind((ADDRESS, 0)).unwrap());
    let listener = listener.join().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let clients = inside(network.clone(), move || {
        let pause = Duration::from_millis(50);
        while is_over.recv_timeout(pause) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            drop(TcpStream::connect(address).unwrap());
        }
    });
    let began = Instant::now();
    let output = prestop(&network, &name, &["--max", "2s"]).output().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(output.status.code(), Some(0));
    drop(over);
    clients.join().unwrap();
    group
        .replica(replica)
        .wait_log("no silence on its ports until the end of --max");
}

#[test]
fn a_soloist_that_listens_only_after_the_hook_has_begun_is_told_how_long_it_took() {
    let mut group = Group::everywhere(&["--grace-period", "20s"]);
    let name = unique_name();
    let mut hook = Command::new(SOLOIST);
    hook.args(["prestop", "--identity", &name, "--ports", "1"])
        .args(["--settle", "1m", "--max", "8s"]);
    let mut hook = clean(&mut hook).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(hook.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    assert!(first.contains("no soloist of the name"), "{first}");
    let (replica, _) = group.lead(&name, &[], &[]);
    assert_eq!(hook.wait().unwrap().code(), Some(0));
    group.replica(replica).wait_log("preStop: not in a Pod");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group
        .replica(replica)
        .wait_log("left of the grace period after preStop");
}

/// The hook goes on without it.
#[test]
fn a_soloist_that_is_stopped_holds_the_hook_up_for_a_moment_only() {
    let mut group = Group::everywhere(&[]);
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    control_socket(&group);
    group.replica(replica).signal(Signal::STOP);
    let mut hook = Command::new(SOLOIST);
    // No port of this machine counts.
    hook.args(["prestop", "--identity", &name, "--max", "3s"])
        .args(["--ports", "1", "--settle", "1ms"]);
    let began = Instant::now();
    let output = clean(&mut hook).output().unwrap();
    let took = began.elapsed();
    group.replica(replica).signal(Signal::CONT);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("no soloist of the name"), "{said}");
    assert!(took < Duration::from_secs(15), "{took:?} {said}");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_stop_in_the_middle_of_the_hook_waits_for_nothing_and_the_hook_ends_in_order() {
    let mut group = Group::everywhere(&["--grace-period", "20s"]);
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut hook = Command::new(SOLOIST);
    hook.args([
        "prestop",
        "--identity",
        &name,
        "--settle",
        "1m",
        "--max",
        "3s",
    ])
    .args(["--ports", "1"]);
    let hook = clean(&mut hook).stderr(Stdio::piped()).spawn().unwrap();
    group.replica(replica).wait_log("the Pod's end is near");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    let output = hook.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("soloist does not answer"), "{said}");
}

#[test]
fn a_hook_that_would_take_all_of_the_grace_period_is_warned_of() {
    let mut group = Group::everywhere(&["--grace-period", "8s"]);
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    for max in [7999, 8000] {
        let mut begin = request("prestop-begin");
        begin["max_ms"] = max.into();
        assert_eq!(ask(&group, &begin)["ok"], true);
    }
    let warned = "the hook's --max is not less than the grace period";
    group.replica(replica).wait_log(warned);
    let log = group.replica(replica).log();
    assert_eq!(log.matches(warned).count(), 1, "only the second: {log}");
}

#[test]
fn two_hooks_at_once_both_end_and_both_are_told_of() {
    let mut group = Group::everywhere(&["--grace-period", "20s"]);
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &[]);
    let hooks = [(); 2].map(|()| {
        let mut hook = Command::new(SOLOIST);
        hook.args(["prestop", "--identity", &name, "--ports", "1"])
            .args(["--settle", "300ms", "--max", "5s"]);
        clean(&mut hook).stderr(Stdio::piped()).spawn().unwrap()
    });
    for hook in hooks {
        let output = hook.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    let log = group.replica(replica).log();
    assert_eq!(log.matches("preStop: not in a Pod").count(), 2, "{log}");
}

#[test]
fn a_hook_on_a_standby_ends_its_readiness_and_nothing_else() {
    let mut group = Group::with(&[LISTEN]);
    let (leader, standby) = (unique_name(), unique_name());
    let (first, start) = group.lead(&leader, &[], &[]);
    let second = group.follow(&standby, &[], &[]);
    let at = address(group.replica(second));
    wait_code(at, "/readyz", 200);
    let mut hook = Command::new(SOLOIST);
    hook.args([
        "prestop",
        "--identity",
        &standby,
        "--ports",
        "1",
        "--max",
        "3s",
    ])
    .args(["--settle", "1ms"]);
    let output = clean(&mut hook).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    wait_code(at, "/readyz", 503);
    wait_code(at, "/livez", 200);
    group.replica(second).signal(Signal::TERM);
    assert_eq!(group.replica(second).exit_code(), 0);
    assert!(crate::harness::is_alive(start.pid));
    group.replica(first).signal(Signal::TERM);
    assert_eq!(group.replica(first).exit_code(), 0);
}

#[test]
fn a_standby_whose_hook_has_begun_takes_a_free_lease_only_if_nobody_else_does() {
    let mut group = Group::new();
    let (leader, standby) = (unique_name(), unique_name());
    let (first, _) = group.lead(&leader, &[], &[]);
    let second = group.follow(&standby, &[], &[]);
    let mut hook = Command::new(SOLOIST);
    hook.args(["prestop", "--identity", &standby, "--ports", "1"])
        .args(["--settle", "1ms", "--max", "3s"]);
    assert!(clean(&mut hook).output().unwrap().status.success());
    let asked = Instant::now();
    group.replica(first).signal(Signal::TERM);
    group.wait_start(&standby);
    let took = asked.elapsed();
    assert!(took >= lease() / 3, "{took:?}");
    group.replica(second).signal(Signal::TERM);
    assert_eq!(group.replica(second).exit_code(), 0);
}
