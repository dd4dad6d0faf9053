//! The manual pages: strait(1) and one for each command out of the command line, strait.yaml(5) out of
//! the reference.
//!
//! `packaging/man` has them as they are installed; a test compares.

use std::io::{self, Write};
use std::path::Path;

use clap::Command;

use crate::Failure;
use crate::filter_list::filter_kinds;

/// Sections of the page that the command line's help does not have.
const MORE: &str = "\
.SH SIGNALS
.TP
SIGTERM, SIGINT, SIGQUIT
Drain: accept no new connections, finish active exchanges for up to \\fBlimits.drain_timeout\\fR, then exit with status 0.
With \\fBlimits.drain_delay\\fR, the process first reports that it is not ready and accepts connections for that time; a
second signal during that time ends the delay. A signal during the drain ends the process at once, with status 1. With \\fBhandover.fd_store: connections\\fR,
SIGTERM leaves the connections to the next process instead.
.TP
SIGHUP
Read the configuration file again, even if it did not change.
.TP
SIGUSR1
Open the access log again, for logrotate(8).
.TP
SIGUSR2
Write a log message, and nothing else.
.SH FILES
.TP
/etc/strait/strait.yaml
The configuration of the service: strait.yaml(5).
.TP
/run/strait, /var/log/strait, /var/lib/strait
Folders that the service may write to: unix sockets, access logs, and the option \\fBstate\\fR.
.SH ENVIRONMENT
.TP
NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID
The socket to which the process reports its state, for a service manager: sd_notify(3).
.TP
LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES
Sockets that the service manager opened, for the listeners with their addresses: sd_listen_fds(3).
.TP
SSLKEYLOGFILE
With \\fB\\-\\-tls\\-key\\-log\\fR: the file for secrets of TLS connections.
.TP
RUNTIME_DIRECTORY
The folder for the handover socket, if \\fBhandover.socket\\fR is not configured; systemd sets it.
.SH EXIT STATUS
.TP
0
The process has drained; or the configuration is valid; or the new process serves (\\fBupgrade\\fR).
.TP
1
The configuration is refused, the process cannot start, it was stopped before the end of its drain, or an upgrade failed.
.TP
2
The command line is wrong.
.SH EXAMPLES
.TP
strait check \\-c strait.yaml
Print all errors of a file, each with its position and a correction.
.TP
strait explain \\-c strait.yaml GET https://shop.example/api/x \\-H \\(aqx\\-canary: 1\\(aq
Show which listener, rule and cluster a request would use, and why others do not match.
.TP
strait run \\-c strait.yaml \\-\\-log\\-format json
Serve, until SIGTERM.
.TP
curl http://127.0.0.1:9901/
Show the pages of the admin interface, if the configuration has \\fBadmin: { address: 127.0.0.1:9901 }\\fR.
.SH SEE ALSO
strait.yaml(5), systemd.service(5), logrotate(8)
";

/// Prints strait(1).
pub(crate) fn print(command: Command) -> Result<(), Failure> {
    Ok(io::stdout().lock().write_all(&first(command)?)?)
}

/// Writes every page into a folder.
pub(crate) fn write(command: Command, dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command.clone(), dir)?;
    std::fs::write(dir.join("strait.1"), first(command)?)?;
    let reference = config::reference(&filter_kinds()?).map_err(Failure::Filters)?;
    Ok(std::fs::write(dir.join("strait.yaml.5"), of_reference(&reference))?)
}

fn first(command: Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    page.extend_from_slice(MORE.as_bytes());
    Ok(page)
}

/// strait.yaml(5) out of the reference's Markdown, of which only what it uses is known: headings,
/// paragraphs, lists, and tables whose rows are keys.
fn of_reference(markdown: &str) -> String {
    let mut page = String::from(
        ".TH strait.yaml 5\n.SH NAME\nstrait.yaml \\- configuration of strait(1)\n.SH DESCRIPTION\n",
    );
    let mut was_empty = false;
    for line in markdown.lines().filter(|line| !is_for_authors(line)) {
        if let Some(heading) = line.strip_prefix("## ") {
            page.push_str(&format!(".SH {}\n", inline(heading)));
        } else if let Some(item) = line.strip_prefix("- ") {
            page.push_str(&format!(".IP \\(bu 2\n{}\n", start_of_line(&inline(item))));
        } else if let Some((name, row)) =
            line.strip_prefix("| `").and_then(|row| row.split_once("` |"))
        {
            page.push_str(&key(name, row));
        } else if !line.is_empty() && !line.starts_with(['|', '#']) {
            let break_before = if was_empty { ".PP\n" } else { "" };
            page.push_str(&format!("{break_before}{}\n", start_of_line(&inline(line))));
        }
        was_empty = line.is_empty();
    }
    page.push_str(".SH SEE ALSO\nstrait(1)\n");
    page
}

/// Lines about how the Markdown page is made.
fn is_for_authors(line: &str) -> bool {
    line.starts_with("# ") || line.contains("This page is generated") || line.contains("BLESS=1")
}

/// A key of a table: its name, type and default on a line, what it means below.
fn key(name: &str, row: &str) -> String {
    // A `|` within a cell is escaped.
    let row = row.replace("\\|", "\u{1f}");
    let cells: Vec<_> =
        row.split('|').map(|cell| inline(&cell.trim().replace('\u{1f}', "|"))).collect();
    let [kind, default, meaning, ..] = &*cells else { return String::new() };
    let name = inline(name);
    let default = match &**default {
        "none" => String::new(),
        "\\fBrequired\\fR" => ", required".to_owned(),
        default => format!("; default: {default}"),
    };
    format!(".TP\n\\fB{name}\\fR ({kind}{default})\n{}\n", start_of_line(meaning))
}

/// Text of a line: `code` and **bold** in bold, links without their targets.
fn inline(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let mut out = String::new();
    let mut is_bold = false;
    let mut rest = &*escaped;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("**").or_else(|| rest.strip_prefix('`')) {
            is_bold = !is_bold;
            out.push_str(if is_bold { "\\fB" } else { "\\fR" });
            rest = after;
        } else if let Some((text, after)) = link(rest) {
            out.push_str(text);
            rest = after;
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// `[text](target)` at the front, and what is behind it.
fn link(text: &str) -> Option<(&str, &str)> {
    let (text, after) = text.strip_prefix('[')?.split_once("](")?;
    let (_, after) = after.split_once(')')?;
    (!text.contains([']', '['])).then_some((text, after))
}

/// A line that begins with a dot is a request of roff otherwise.
fn start_of_line(text: &str) -> String {
    if text.starts_with('.') { format!("\\&{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_text_of_the_reference_become_roff() {
        let reference = "# Title\n\n- A **size** is `64KiB`.\n\n## `listeners[]`\n\nText of [it](x.md).\n.dot\n\n\
                         | key | type | default | meaning |\n|---|---|---|---|\n\
                         | `a_b` | `x` \\| `y` | `\"q\"` | It's - so. |\n| `c` | map | **required** | See. |\n";
        let page = of_reference(reference);
        for part in [
            ".IP \\(bu 2\nA \\fBsize\\fR is \\fB64KiB\\fR.\n",
            ".SH \\fBlisteners[]\\fR\n.PP\nText of it.\n\\&.dot\n",
            ".TP\n\\fBa_b\\fR (\\fBx\\fR | \\fBy\\fR; default: \\fB\"q\"\\fR)\nIt\\(aqs \\- so.\n",
            ".TP\n\\fBc\\fR (map, required)\nSee.\n",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("Title"));
    }

    #[test]
    fn every_manual_page_is_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/man");
        let command = <crate::Arguments as clap::CommandFactory>::command();
        if std::env::var_os("BLESS").is_some() {
            let _ = std::fs::remove_dir_all(&folder);
            write(command, &folder).unwrap();
            return;
        }
        let fresh = std::env::temp_dir().join(format!("strait-man-{}", std::process::id()));
        write(command, &fresh).unwrap();
        let pages = |folder: &Path| {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            let text = |path| std::fs::read_to_string(path).unwrap();
            let pages = entries.map(|entry| (entry.file_name(), text(entry.path())));
            pages.collect::<std::collections::BTreeMap<_, _>>()
        };
        let (kept, made) = (pages(&folder), pages(&fresh));
        std::fs::remove_dir_all(&fresh).unwrap();
        assert!(kept == made, "packaging/man is old: BLESS=1 cargo test -p strait --lib");
    }
}
