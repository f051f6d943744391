//! A server that writes down how it is ended: `ending-server FILE SAVE_MS|never`.
//!
//! Each line of the file is a time, in ms, and a word: `start`, a signal that has come, `end` at the
//! end of the input, and `saved` when the server has saved, which takes it so long after that end; then it
//! exits. Signals do not end it. With `never` only SIGKILL does. It answers each request at once, and reads
//! nothing more when its tool `hang` was called.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

const CAUGHT: [Signal; 7] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGCONT,
];

#[expect(clippy::print_stdout, reason = "it is what the host reads")]
fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or(io::ErrorKind::InvalidInput)?;
    let save_ms = arguments.next().and_then(|save| save.parse().ok());
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut signals = Signals::new(CAUGHT.map(|signal| signal as i32))?;
    let other = file.try_clone()?;
    std::thread::spawn(move || {
        for signal in &mut signals {
            let signal = Signal::try_from(signal).map(Signal::as_str);
            let _ = write(&other, signal.unwrap_or("?"));
        }
    });
    write(&file, "start")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        if let Some(answer) = answer(&line) {
            println!("{answer}");
        }
        if line.contains(r#""name":"hang""#) {
            wait_for_ever();
        }
    }
    write(&file, "end")?;
    let save_ms = save_ms.unwrap_or_else(|| wait_for_ever());
    std::thread::sleep(Duration::from_millis(save_ms));
    write(&file, "saved")
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

fn write(mut file: &File, word: &str) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(io::Error::other)?.as_millis();
    file.write_all(format!("{now} {word}\n").as_bytes())
}

fn answer(line: &str) -> Option<Value> {
    let request: Value = serde_json::from_str(line).ok()?;
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "ending", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{"name": "use", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": "used"}]}),
        _ => json!({}),
    };
    Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
}
