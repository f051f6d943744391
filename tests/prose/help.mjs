// What `--help` prints, as sentences: wrapped lines are joined, and commands are left out.

/** The verbs above "Options:", whatever the headings say that they are below. */
export function subcommands(text) {
  const above = text.split(/^Options:/m)[0];
  return [...above.matchAll(/^ {2}([a-z][\w-]*)(?: {2,}|$)/gm)].map(([, verb]) => verb).filter((verb) => verb !== 'help');
}

/** The paragraphs of a help, and the descriptions of its verbs, arguments and options. */
export function paragraphs(text) {
  const found = [];
  let open = '';
  const end = () => {
    if (open) found.push(open);
    open = '';
  };
  for (const line of text.split('\n')) {
    const indent = line.search(/\S/);
    const rest = line.trim();
    if (!rest || /^(Usage|Commands|Arguments|Options|Possible values|Examples?)\b.*:?/.test(rest)) {
      end();
    } else if (indent === 0) {
      open += (open ? ' ' : '') + rest;
    } else if (indent <= 6 && !/^- \S+:/.test(rest)) {
      // A verb or an option, with what it does behind it or below it; or an example, which has no such gap.
      end();
      open = rest.split(/\s{2,}/).slice(1).join(' ');
    } else if (/^- \S+:/.test(rest)) {
      end();
      open = rest.replace(/^- \S+:\s*/, '');
    } else {
      open += (open ? ' ' : '') + rest;
    }
  }
  end();
  // What stands for a command or a value is no prose.
  return found.map((paragraph) => paragraph.replace(/`[^`]*`/g, '`x`').replace(/\[[^\]]*\]/g, ''));
}
