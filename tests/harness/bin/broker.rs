//! The broker as a program: `broker SOCKET`. One line of JSON each way; see
//! `mcp_sessiond_tests::broker`.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};

use mcp_sessiond_tests::broker::Broker;

fn main() -> io::Result<()> {
    let socket = std::env::args_os()
        .nth(1)
        .ok_or_else(|| io::Error::other("usage: broker SOCKET"))?;
    let listener = UnixListener::bind(socket)?;
    let broker = Arc::new(Mutex::new(Broker::new()?));
    writeln!(io::stdout(), "ready")?;
    // Whoever started it holds the other end of its standard input, and no broker outlives that.
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let (mut stream, broker) = (stream?, Arc::clone(&broker));
        std::thread::spawn(move || -> io::Result<()> {
            let mut lines = BufReader::new(stream.try_clone()?).lines();
            while let Some(line) = lines.next().transpose()? {
                let answer = broker
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .answer(&line);
                stream.write_all(format!("{answer}\n").as_bytes())?;
            }
            Ok(())
        });
    }
    Ok(())
}
