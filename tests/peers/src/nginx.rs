//! nginx with one `server`, or none, and nothing of the machine's own configuration.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::lab::Lab;
use crate::peer::Peer;
use crate::ports;
use crate::process::Process;
use crate::strait::local;

/// A running nginx.
#[derive(Debug)]
pub(crate) struct Nginx {
    _process: Process,
    address: SocketAddr,
}

impl Nginx {
    /// Starts one; `http` is what its `http` block holds, with `LISTEN` for its address.
    /// It logs `METHOD TARGET` of each request to `nginx.log` in the lab's folder.
    pub(crate) fn start(lab: &Lab, http: &str) -> Result<Self> {
        let address = local(ports::free()?);
        let http = http.replace("LISTEN", &address.to_string());
        let arguments = Self::arguments(lab, &http)?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut process = Process::start(lab.folder(), Self::program()?, &arguments)?;
        process.ready(|| TcpStream::connect(address).is_ok())?;
        Ok(Self { _process: process, address })
    }

    pub(crate) fn program() -> Result<PathBuf> {
        Peer::Nginx.program().context("nginx")
    }

    /// Writes a configuration, and says what nginx has to be started with.
    pub(crate) fn arguments(lab: &Lab, http: &str) -> Result<Vec<String>> {
        let folder = lab.folder().display();
        let config = format!(
            "daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 4096; }}
http {{
  log_format seen '$request_method $request_uri';
  access_log {folder}/nginx.log seen;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  client_max_body_size 0;
  keepalive_requests 1000000;
{http}
}}
",
        );
        let file = lab.write("nginx.conf", config)?;
        // Started by root, its workers would otherwise give up their rights to read the folder.
        // Users other than root get a warning; in a network namespace (`network`) the user is root.
        let user = "user root;";
        Ok(["-c", &file.to_string_lossy(), "-e", "stderr", "-g", user].map(str::to_owned).into())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
