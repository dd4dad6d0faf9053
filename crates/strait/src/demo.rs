//! `strait demo`: a working proxy in front of services to play with, on real sockets.

mod services;

use std::io::{self, Write};

use control::ConfigFile;

use crate::activation::Activation;
use crate::arguments::Demo;
use crate::data_path::address_text;
use crate::filter_list::loader;
use crate::secrecy::CoreDumps;
use crate::serve::{Came, serve};
use crate::{Failure, logging};
use services::{Addresses, Services};

/// The configuration, with the addresses of this run to be put in.
const TEMPLATE: &str = include_str!("demo/strait.yaml");

/// Runs the demo until Ctrl-C.
pub(crate) fn demo(demo: &Demo) -> Result<(), Failure> {
    logging::start(&demo.log).map_err(|error| Failure::Start(error.to_string()))?;
    let services = Services::start()
        .map_err(|error| Failure::Start(format!("the demo's services: {error}")))?;
    let config = config(demo, &services.addresses);
    let config = ConfigFile::fixed("demo", config, loader()?);
    let activation = Activation::default();
    let core_dumps = CoreDumps::UNTIL_KEYS;
    let result = serve(config, Vec::new(), core_dumps, activation, None, |came| Ok(guide(came)?));
    drop(services);
    result.map_err(|failure| match failure {
        Failure::Config(control::Refused::Unbindable(failures)) => {
            let failures = failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            Failure::Start(format!("{failures}: --listen ADDRESS"))
        }
        Failure::Start(reason) if reason.starts_with("the admin interface") => {
            Failure::Start(format!("{reason}: --admin ADDRESS"))
        }
        other => other,
    })
}

fn config(demo: &Demo, addresses: &Addresses) -> String {
    TEMPLATE
        .replace("@LISTEN@", &demo.listen.to_string())
        .replace("@ADMIN@", &demo.admin.to_string())
        .replace("@SHOP_1@", &addresses.shop_1.to_string())
        .replace("@SHOP_2@", &addresses.shop_2.to_string())
        .replace("@ECHO@", &addresses.echo.to_string())
        .replace("@SLOW@", &addresses.slow.to_string())
        .replace("@FLAKY@", &addresses.flaky.to_string())
}

/// Prints what is worth trying.
fn guide(came: &Came) -> io::Result<()> {
    let address = |address: Option<std::net::SocketAddr>| {
        address.map_or_else(String::new, |address| address.to_string())
    };
    let at = came.listeners.first().and_then(|(_, addresses)| addresses.first());
    let at = at.map_or_else(String::new, address_text);
    let admin = address(came.admin);
    let mut out = io::stdout().lock();
    write!(
        out,
        "\n\
         Strait forwards requests for {at} to example services in this process. In another terminal:\n\
         \n\
         \x20 curl http://{at}/                              shop: three of four responses come from version 1\n\
         \x20 curl -d 'some body' http://{at}/echo?x=1       the request as the service received it: x-forwarded-for, x-request-id\n\
         \x20 curl -H 'x-demo-secret: 1' http://{at}/echo    the headers filter removed that field, and set x-edge\n\
         \x20 curl -i http://{at}/echo/a/%2e%2e/b            paths are normalised before they are matched and forwarded\n\
         \x20 curl -i 'http://{at}/slow?ms=500'              a slow service; then see /slow of the admin interface below\n\
         \x20 curl -i 'http://{at}/slow?ms=3000'             slower than the rule's timeout of 2s: 504 request_timeout\n\
         \x20 curl -i http://{at}/flaky                      every third request fails; every fourth is cut off, and a GET\n\
         \x20                                               is retried (attempts=2 in the log below)\n\
         \x20 curl -i -d x http://{at}/flaky                 a POST is not retried: 502 upstream_closed\n\
         \x20 curl -i http://{at}/healthz                    answered by Strait, without a service\n\
         \x20 curl -i http://{at}/old/page?a=b               redirected to /page\n\
         \x20 curl -i http://{at}/down                       a service that does not exist: 503 connect_failed\n\
         \x20 curl -i -H 'host: unknown.invalid' http://{at}/ no route table has this host: 404 no_host\n\
         \x20 (printf 'GET /tunnel HTTP/1.1\\r\\nhost: demo.localhost\\r\\nconnection: upgrade\\r\\nupgrade: websocket\\r\\n\\r\\n';\n\
         \x20  sleep 1; echo hello; sleep 1) | nc {ip} {port}    an upgrade: the tunnel returns the same bytes\n\
         \n\
         The admin interface, at http://{admin}/ :\n\
         \n\
         \x20 curl http://{admin}/slow?format=text        the slowest requests, stage by stage\n\
         \x20 curl http://{admin}/stats?filter=upstream   metrics, here those of upstreams\n\
         \x20 curl http://{admin}/config                  the configuration in use\n\
         \x20 curl http://{admin}/connections             open connections\n\
         \x20 curl -X POST http://{admin}/drain           ends the demo, as SIGTERM does\n\
         \n\
         The access log follows. Ctrl-C ends it.\n\
         \n",
        ip = at.rsplit_once(':').map_or("", |(ip, _)| ip),
        port = at.rsplit_once(':').map_or("", |(_, port)| port),
    )?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::arguments::{Log, LogFormat, LogLevel};

    #[test]
    fn the_embedded_configuration_is_right() {
        let any: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let demo = Demo {
            listen: "127.0.0.1:0".parse().unwrap(),
            admin: "127.0.0.1:0".parse().unwrap(),
            log: Log { log_level: LogLevel::Info, log_format: LogFormat::Text },
        };
        let addresses = Addresses {
            shop_1: any,
            shop_2: "127.0.0.1:2".parse().unwrap(),
            echo: any,
            slow: any,
            flaky: any,
        };
        let text = config(&demo, &addresses);
        assert!(!text.contains('@'), "{text}");
        let mut loader = loader().unwrap();
        loader.load("demo", &text).unwrap();
        assert_eq!(loader.warnings(), []);
    }
}
