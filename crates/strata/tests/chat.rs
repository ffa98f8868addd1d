//! `strata chat`, through a pipe and on a terminal.

mod common;

use common::{run, strata};
use std::io::Write;
use std::process::Stdio;

const SOPHIA: &str = "The ticket number of Sophia is 392. What is the ticket number of Sophia?";

/// Feeds lines to a chat; gives standard output and error.
fn chat(args: &[&str], input: &str) -> (String, String) {
    let mut c = strata(&[&["chat", "--temp", "0"], args].concat());
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{stderr}");
    (String::from_utf8(out.stdout).unwrap(), stderr)
}

#[test]
fn a_first_answer_is_that_of_run() {
    let want = run(&[SOPHIA, "-n", "64"])["text"].as_str().unwrap().to_owned();
    let (out, err) = chat(&["-n", "64"], SOPHIA);
    assert_eq!((out, err.as_str()), (format!("{want}\n"), ""));
}

#[test]
fn reset_forgets_and_the_conversation_remembers() {
    let ask = "What is the ticket number of Sophia?";
    let first = chat(&["-n", "32"], &format!("{SOPHIA}\n")).0;
    let (out, err) = chat(&["-n", "32", "--stats"], &format!("{SOPHIA}\n{ask}\n/reset\n{SOPHIA}\n\n/exit\nnever asked\n"));
    assert!(out.starts_with(&first) && out.ends_with(&first) && out.lines().count() == 3, "{out}");
    let lines: Vec<&str> = err.lines().collect();
    assert!(lines.len() == 4 && lines[2] == "A new conversation.", "{err}");
    let prompts = [0, 1, 3].map(|i| lines[i].split(' ').nth(1).unwrap().parse::<usize>().unwrap());
    let alone = run(&[ask, "-n", "1"])["prompt_tokens"].as_u64().unwrap() as usize;
    assert!(prompts[0] == prompts[2] && prompts[1] > prompts[0] + alone, "the first turn is part of the second prompt: {prompts:?}");
}

#[test]
fn think_switches_the_template() {
    let (out, err) = chat(&["-n", "200", "--stats"], &format!("/think\n{SOPHIA}\n/think off\n/reset\n{SOPHIA}\n/nonsense\n"));
    let think = run(&[SOPHIA, "--think", "-n", "200"])["text"].as_str().unwrap().to_owned();
    let plain = run(&[SOPHIA, "-n", "200"])["text"].as_str().unwrap().to_owned();
    assert_eq!(out, format!("{think}\n{plain}\n"));
    assert!(err.starts_with("Thinking is on.\nprompt ") && err.contains("Thinking is off.\nA new conversation.\n"), "{err}");
    assert!(err.contains("There is no command \"/nonsense\""), "{err}");
}

#[test]
fn a_full_context_is_an_error_of_a_pipe() {
    let mut c = strata(&["chat", "--ctx", "16"]);
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(SOPHIA.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let err = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(err.starts_with("error: the prompt has ") && err.contains("the context holds 16"), "{err}");
}

#[cfg(target_os = "linux")]
mod terminal {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Child;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    /// A program on a terminal of its own.
    struct Session {
        child: Child,
        keys: File,
        screen: Receiver<Vec<u8>>,
        seen: String,
    }

    impl Session {
        fn new(args: &[&str]) -> Session {
            let (mut master, mut slave) = (0, 0);
            let null = std::ptr::null_mut();
            // SAFETY: both descriptors are written by the call; the other arguments may be null.
            let r = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) };
            assert_eq!(r, 0);
            // SAFETY: the descriptors are open and nobody else owns them.
            let (keys, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
            let mut c = strata(args);
            c.env("TERM", "xterm").stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
            // SAFETY: only two system calls between fork and exec; both are safe there.
            unsafe {
                c.pre_exec(|| {
                    libc::setsid();
                    // the new session takes standard input for its controlling terminal: Ctrl-C becomes a signal
                    if libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
                });
            }
            let child = c.spawn().unwrap();
            drop(c);
            let (send, screen) = channel();
            let mut from = keys.try_clone().unwrap();
            std::thread::spawn(move || {
                let mut buf = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut buf) {
                    if send.send(buf[..n].to_vec()).is_err() {
                        break;
                    }
                }
            });
            Session { child, keys, screen, seen: String::new() }
        }

        /// Waits until `what` has come since the last wait.
        fn wait(&mut self, what: &str) {
            let end = Instant::now() + Duration::from_secs(60);
            loop {
                if let Some(at) = self.seen.find(what) {
                    self.seen.drain(..at + what.len());
                    return;
                }
                let left = end.saturating_duration_since(Instant::now());
                match self.screen.recv_timeout(left) {
                    Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                    Err(_) => panic!("no {what:?} in {:?}", self.seen),
                }
            }
        }

        fn keys(&mut self, text: &str) {
            self.keys.write_all(text.as_bytes()).unwrap();
        }
    }

    #[test]
    fn lines_are_edited_and_ctrl_c_stops_the_answer_only() {
        let mut s = Session::new(&["chat", "--temp", "0", "--ignore-eos"]);
        s.wait("/help lists the commands.");
        s.wait("> ");
        // one wrong character, taken back
        s.keys("/resetx\x7f\r");
        s.wait("A new conversation.");
        s.wait("> ");
        s.keys("\x03");
        s.wait("(Ctrl-D or /exit leaves)");
        s.wait("> ");
        s.keys("Say these words again: letter, evening, summer.\r");
        s.wait("letter, evening, summer.\r\n");
        s.wait("letter");
        s.keys("\x03");
        s.wait("(stopped)");
        s.wait("> ");
        s.keys("\x04");
        let status = s.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}
