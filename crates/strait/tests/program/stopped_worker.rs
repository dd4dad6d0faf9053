//! A worker that hangs.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Stops a thread of another process until this one ends, as a debugger does.
const STOP_THREAD: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_ATTACH = 16
if libc.ptrace(PTRACE_ATTACH, int(sys.argv[1]), None, None) != 0:
    sys.exit(f'ptrace: {os.strerror(ctypes.get_errno())}')
os.waitpid(int(sys.argv[1]), 0x40000000)
print('stopped', flush=True)
sys.stdin.read()
";

/// A worker's thread that does not run until this is dropped, as a debugger stops it.
pub(crate) struct StoppedWorker(Child);

impl StoppedWorker {
    /// None where threads of other processes cannot be stopped, which is said.
    pub(crate) fn stop(pid: u32, worker: u32) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let name = format!("strait-worker-{worker}");
        let is_it = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|it| it.trim() == name)
        };
        let thread = tasks.map(|task| task.unwrap().path()).find(is_it).unwrap();
        let stopper = Command::new("python3")
            .args(["-c", STOP_THREAD, thread.file_name().unwrap().to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(stopper) = stopper else {
            println!("skipped: python3 is missing");
            return None;
        };
        let mut this = Self(stopper);
        let mut said = [0; 7];
        if this.0.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
            println!("skipped: threads of other processes cannot be stopped here");
            return None;
        }
        Some(this)
    }
}

impl Drop for StoppedWorker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
