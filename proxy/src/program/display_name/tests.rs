//! Command lines as they stand in hosts' configurations, and what may be seen of them.

use super::*;

fn telling(line: &str) -> String {
    let mut line = line.split(' ').map(OsString::from);
    let name = line.next().expect("a program");
    of(&name, &line.collect::<Vec<_>>())
}

#[track_caller]
fn assert_told(lines: &[(&str, &str)]) {
    for (line, told) in lines {
        assert_eq!(telling(line), *told, "{line}");
    }
}

#[test]
fn a_package_is_told() {
    assert_told(&[
        ("npx @playwright/mcp", "npx @playwright/mcp"),
        (
            "npx @playwright/mcp@latest --headless",
            "npx @playwright/mcp",
        ),
        (
            "npx -y @playwright/mcp@0.0.41",
            "npx @playwright/mcp@0.0.41",
        ),
        (
            "/opt/node/bin/npx --yes --registry https://u:p@r.example x-mcp",
            "npx x-mcp",
        ),
        (
            "npx -y -p typescript -p ts-node server-command",
            "npx server-command",
        ),
        (
            "npx -yq --package=a@1 -- server --token s3cret",
            "npx server",
        ),
        ("npx -y firecrawl-mcp s3cret", "npx firecrawl-mcp"),
        (
            "npx -y mcp-remote https://mcp.example/s3cret",
            "npx mcp-remote",
        ),
        (
            "npm exec --yes -- @scope/server s3cret",
            "npm exec @scope/server",
        ),
        ("npm x server", "npm x server"),
        ("npm run start -- --key s3cret", "npm run start"),
        ("pnpm dlx some-mcp", "pnpm dlx some-mcp"),
        (
            "uvx mcp-server-git --repository /home/me/s3cret",
            "uvx mcp-server-git",
        ),
        (
            "uvx --from git+https://s3cret@github.com/oraios/serena serena start-mcp-server",
            "uvx serena",
        ),
        (
            "uvx --python 3.12 --with httpx --index=https://s3cret@x markitdown-mcp",
            "uvx markitdown-mcp",
        ),
        ("uvx mcp[cli]==1.2", "uvx mcp[cli]==1.2"),
        ("uv tool run --from pkg cmd", "uv tool run cmd"),
        (
            "pipx run --spec git+https://s3cret@x/y some-server arg",
            "pipx run some-server",
        ),
        ("bunx some-mcp s3cret", "bunx some-mcp"),
        ("bun x --bun some-mcp", "bun x some-mcp"),
        (
            "deno run -A npm:@scope/server",
            "deno run npm:@scope/server",
        ),
        (
            "deno run --allow-net --allow-env=HOME jsr:@scope/mod",
            "deno run jsr:@scope/mod",
        ),
    ]);
}

#[test]
fn a_script_is_told_by_the_end_of_its_path() {
    assert_told(&[
        ("node server.js", "node server.js"),
        (
            "/usr/local/bin/node /home/me/work/server.js --token s3cret",
            "node server.js",
        ),
        (
            "node --max-old-space-size=4096 --import ./s3cret.mjs --no-warnings ./server.mjs",
            "node server.mjs",
        ),
        ("node --env-file .env server.js", "node server.js"),
        (
            "node /home/me/weather/build/index.js",
            "node weather/build/index.js",
        ),
        ("node dist/index.js", "node index.js"),
        ("node ./main.js", "node main.js"),
        ("python3 -u /srv/server.py s3cret", "python3 server.py"),
        (
            "python3.12 -I -S -W ignore -Xdev tiny.py",
            "python3.12 tiny.py",
        ),
        (
            "python -m mcp_server_git --repository x",
            "python -m mcp_server_git",
        ),
        ("python -um mcp_server_fetch", "python -m mcp_server_fetch"),
        ("uv run server.py", "uv run server.py"),
        (
            "uv run --directory /home/me/x --with mcp mcp run server.py",
            "uv run mcp",
        ),
        ("uv run -m my.server", "uv run -m my.server"),
        (
            "uv run --with six python -u /x/server.py s3cret",
            "uv run python server.py",
        ),
        (
            "uv run /x/weather/src/main.py",
            "uv run weather/src/main.py",
        ),
        ("bun run /x/server.ts", "bun run server.ts"),
        ("bun --watch server.ts s3cret", "bun server.ts"),
        (
            "deno run -NR --config deno.json /x/server.ts",
            "deno run server.ts",
        ),
        (
            "deno run https://esm.example/s3cret/mod.ts?key=s3cret",
            "deno run esm.example",
        ),
        ("npx ./server s3cret", "npx server"),
    ]);
}

#[test]
fn an_image_is_told() {
    assert_told(&[
        (
            "docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server stdio",
            "docker run ghcr.io/github/github-mcp-server",
        ),
        (
            "docker run --rm -it --env=KEY=s3cret -eA=s3cret -v /a:/b mcp/fetch:1.0 s3cret",
            "docker run mcp/fetch:1.0",
        ),
        (
            "podman run --name s3cret --network host localhost:5000/mcp",
            "podman run localhost:5000/mcp",
        ),
        (
            "docker container run mcp/time",
            "docker container run mcp/time",
        ),
        ("docker exec -i box server s3cret", "docker"),
    ]);
}

#[test]
fn what_only_prepares_the_ground_is_passed_over() {
    assert_told(&[
        ("env KEY=s3cret npx -y some-mcp", "npx some-mcp"),
        (
            "/usr/bin/env -i -u HOME A=s3cret B=s3cret node server.js",
            "node server.js",
        ),
        (
            "nice -n 10 nohup stdbuf -oL python server.py",
            "python server.py",
        ),
        ("setsid --wait uvx mcp-server-git", "uvx mcp-server-git"),
        ("xvfb-run -a npx @playwright/mcp", "npx @playwright/mcp"),
        ("op run --env-file=s3cret -- npx some-mcp", "npx some-mcp"),
        (
            "doppler run --token s3cret -- uv run server.py",
            "uv run server.py",
        ),
        ("mise exec node@22 -- node server.js", "node server.js"),
        (
            "direnv exec /home/me/s3cret node server.js",
            "node server.js",
        ),
        (
            "conda run -n s3cret --no-capture-output python server.py",
            "python server.py",
        ),
        ("conda install s3cret", "conda"),
        ("poetry run python server.py", "python server.py"),
        ("poetry run mcp-server", "mcp-server"),
        // It can't be said where the command begins.
        ("doppler run --token s3cret", "doppler"),
        ("env -S s3cret", "env"),
        ("nice nice nice nice nice nice node s3cret.js", "nice"),
    ]);
}

#[test]
fn any_other_argument_could_be_a_secret() {
    assert_told(&[
        ("/opt/bin/my-server --token s3cret", "my-server"),
        ("my-server s3cret", "my-server"),
        ("sh -c s3cret", "sh"),
        ("bash s3cret.sh", "bash"),
        ("node", "node"),
        ("node -", "node"),
        ("node -e s3cret", "node"),
        ("node --eval s3cret", "node"),
        ("node --unheard-of s3cret server.js", "node"),
        ("python -c s3cret", "python"),
        ("python -Ic s3cret", "python"),
        ("python -m", "python"),
        ("python -m s3-cret", "python"),
        ("npx -c s3cret", "npx"),
        ("npx --call s3cret", "npx"),
        ("npx --unheard-of s3cret pkg", "npx"),
        (
            "npx git+https://s3cret@github.com/x/s3cret",
            "npx github.com",
        ),
        (
            "npx https://me:s3cret@example.com/s3cret",
            "npx example.com",
        ),
        ("npx https://me:s3cret/s3cret@example.com", "npx"),
        ("npx me:s3cret@example.com", "npx"),
        ("npx  s3cret", "npx"),
        ("npx", "npx"),
        ("npx -y", "npx"),
        ("npx --", "npx"),
        ("npm install s3cret", "npm"),
        ("uv pip install s3cret", "uv"),
        ("uv --project x run s3cret", "uv"),
        ("docker run --unheard-of s3cret image", "docker run"),
        ("docker run -z s3cret image", "docker run"),
        ("deno eval s3cret", "deno"),
        ("bun -e s3cret", "bun"),
        ("git clone s3cret", "git"),
        ("pythonic s3cret", "pythonic"),
    ]);
    let told = of(OsStr::new("npx"), &["a package with spaces s3cret".into()]);
    assert_eq!(told, "npx");
}

#[test]
fn they_are_short_and_have_no_control_characters() {
    let long = "é".repeat(400);
    let told = of(OsStr::new(&long), &[]);
    assert_eq!(told, "é".repeat(LENGTH_MAX / 2));
    let told = of(
        OsStr::new("node"),
        &[format!("/x/{}.js", "a".repeat(400)).into()],
    );
    assert!(
        told.len() <= LENGTH_MAX && told.starts_with("node aaa"),
        "{told}"
    );
    assert_eq!(of(OsStr::new("ev\u{1b}il\n"), &[]), "evil");
    assert_eq!(
        of(OsStr::new("node"), &["a\u{1b}[2J.js".into()]),
        "node a[2J.js"
    );
    assert_eq!(of(OsStr::new(""), &[]), "");
}
