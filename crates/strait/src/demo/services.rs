//! The demo's services: small HTTP servers on ports that the system chooses, on one thread.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// Bytes of a body that the echo takes in.
const ECHO_BYTES_MAX: usize = 1 << 20;

/// The longest that the slow service waits.
const SLOW_MAX: Duration = Duration::from_secs(30);

/// Where the services listen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    pub(super) shop_1: SocketAddr,
    pub(super) shop_2: SocketAddr,
    pub(super) echo: SocketAddr,
    pub(super) slow: SocketAddr,
    pub(super) flaky: SocketAddr,
}

/// The running services; they end when this is dropped.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) addresses: Addresses,
    /// Dropping it ends the thread.
    running: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug)]
enum ServiceKind {
    Shop { version: u8 },
    Echo,
    Slow,
    Flaky,
}

impl Services {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let bind = |kind| -> io::Result<(SocketAddr, TcpListener, ServiceKind)> {
            let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
            Ok((listener.local_addr()?, listener, kind))
        };
        let shop_1 = bind(ServiceKind::Shop { version: 1 })?;
        let shop_2 = bind(ServiceKind::Shop { version: 2 })?;
        let (echo, slow, flaky) =
            (bind(ServiceKind::Echo)?, bind(ServiceKind::Slow)?, bind(ServiceKind::Flaky)?);
        let addresses = Addresses {
            shop_1: shop_1.0,
            shop_2: shop_2.0,
            echo: echo.0,
            slow: slow.0,
            flaky: flaky.0,
        };
        let (running, ended) = oneshot::channel::<Infallible>();
        let thread =
            std::thread::Builder::new().name("demo-services".to_owned()).spawn(move || {
                runtime.block_on(async move {
                    for (_, listener, kind) in [shop_1, shop_2, echo, slow, flaky] {
                        tokio::spawn(serve(listener, kind));
                    }
                    // An error is how the other end's drop shows.
                    let _ = ended.await;
                });
            })?;
        Ok(Self { addresses, running: Some(running), thread: Some(thread) })
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        drop(self.running.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread was reported already.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, kind: ServiceKind) {
    // Out of descriptors, most likely: the demo is over for this service.
    while let Ok((stream, _)) = listener.accept().await {
        let service = service_fn(move |request| respond(kind, request));
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // A client may disconnect at any time.
            let _ = connection.await;
        });
    }
}

/// The service breaks the connection off.
#[derive(Debug, thiserror::Error)]
#[error("broken off")]
struct BrokenOff;

async fn respond(
    kind: ServiceKind,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, BrokenOff> {
    match kind {
        ServiceKind::Shop { version } => Ok(text(200, format!("shop, version {version}\n"))),
        ServiceKind::Echo if request.headers().contains_key(header::UPGRADE) => Ok(tunnel(request)),
        ServiceKind::Echo => Ok(echo(request).await),
        ServiceKind::Slow => {
            let delay =
                argument(&request, "ms").map_or(Duration::from_secs(1), Duration::from_millis);
            let delay = delay.min(SLOW_MAX);
            tokio::time::sleep(delay).await;
            Ok(text(200, format!("after {delay:?}\n")))
        }
        ServiceKind::Flaky => flaky(),
    }
}

fn flaky() -> Result<Response<Full<Bytes>>, BrokenOff> {
    static REQUESTS: AtomicU32 = AtomicU32::new(1);
    match REQUESTS.fetch_add(1, Ordering::Relaxed) {
        n if n % 4 == 0 => Err(BrokenOff),
        n if n % 3 == 0 => Ok(text(500, format!("request {n}: out of order\n"))),
        n => Ok(text(200, format!("request {n}: well\n"))),
    }
}

/// Reports what came.
async fn echo(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let headers: serde_json::Map<String, serde_json::Value> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned().into())
        })
        .collect();
    let (method, uri) = (request.method().to_string(), request.uri().to_string());
    let Ok(body) = Limited::new(request.into_body(), ECHO_BYTES_MAX).collect().await else {
        return text(413, format!("more than {ECHO_BYTES_MAX} bytes\n"));
    };
    let body = body.to_bytes();
    let report = json!({
        "method": method,
        "target": uri,
        "headers": headers,
        "body_bytes": body.len(),
        "body": String::from_utf8_lossy(&body),
    });
    let report = serde_json::to_string_pretty(&report).unwrap_or_default();
    let mut response = text(200, report + "\n");
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Changes the protocol, and sends back what comes.
fn tunnel(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let protocol = request.headers().get(header::UPGRADE).cloned();
    tokio::spawn(async move {
        if let Ok(upgraded) = hyper::upgrade::on(request).await {
            let (mut read, mut write) = tokio::io::split(TokioIo::new(upgraded));
            // It ends when the client does.
            let _ = tokio::io::copy(&mut read, &mut write).await;
        }
    });
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
    if let Some(protocol) = protocol {
        response.headers_mut().insert(header::UPGRADE, protocol);
    }
    response
}

fn text(status: u16, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let powered = header::HeaderValue::from_static("the demo");
    response.headers_mut().insert("x-powered-by", powered);
    response
}

fn argument(request: &Request<Incoming>, name: &str) -> Option<u64> {
    let query = request.uri().query()?;
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name)?.1.parse().ok()
}
